"""The vision stage of an Omni model: what the tower of transformers gives, in any batch, known again by its bytes, bounded."""

import dataclasses
import io

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from engines.base import (  # noqa: E402
    PICTURE_MARK,
    EmbeddedPicture,
    JobKey,
    PictureJob,
    Stage,
    StepRequest,
    UnseenPicture,
)
from engines.model_store.store import ModelStore  # noqa: E402
from tests.integration.engines_omni.kinds import Kind  # noqa: E402
from tests.integration.engines_omni.looking import embedded, look, painted  # noqa: E402

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def create(kind: Kind, options, tmp_path_factory):
    store = ModelStore(tmp_path_factory.mktemp("store"))

    def made(**more: object):
        engine = kind.eyes.create({**options, **more}, store)
        engine.load()
        return engine

    return made


@pytest.fixture(scope="module")
def eyes(create):
    return create(max_batch=4)


def equal(one: EmbeddedPicture, other: EmbeddedPicture) -> bool:
    a, b = one.payload, other.payload
    return (
        (a.rows, a.columns) == (b.rows, b.columns)
        and torch.allclose(a.embeds, b.embeds, atol=1e-4)
        and torch.allclose(a.deep, b.deep, atol=1e-4)
    )


def test_a_photograph_is_embedded_as_by_transformers_own_processor_and_tower(eyes, weights):
    import transformers
    from PIL import Image

    model = transformers.AutoModelForTextToWaveform.from_pretrained(
        weights, dtype=torch.float32, local_files_only=True
    ).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(weights, local_files_only=True)
    data = painted(1, 230, 130, "JPEG")
    cut = processor(Image.open(io.BytesIO(data)), return_tensors="pt")
    with torch.inference_mode():
        seen = model.thinker.get_image_features(cut["pixel_values"], cut["image_grid_thw"])
    (picture,) = embedded(eyes, data)
    assert picture.tokens == picture.payload.rows * picture.payload.columns
    assert torch.allclose(picture.payload.embeds, seen.pooler_output[0], atol=1e-5)
    deep = [layer[0] for layer in getattr(seen, "deepstack_features", None) or []]
    assert len(deep) == len(picture.payload.deep)
    for ours, theirs in zip(picture.payload.deep, deep, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_pictures_in_a_batch_are_each_picture_alone_and_a_bad_one_fails_alone(create, eyes):
    pictures = [painted(5), b"GIF89a and no more", painted(6, 130, 290), painted(7, 90, 60)]
    together = look(eyes, *pictures, at_once=4)
    alone = look(create(), *pictures)
    assert [r.error for r in together] == [None] * 4
    assert isinstance(together[1].output, UnseenPicture)
    assert together[1].output == alone[1].output
    for n in (0, 2, 3):
        assert together[n].output.mark == alone[n].output.mark
        assert equal(together[n].output, alone[n].output)


def test_the_same_bytes_are_looked_at_once_in_all_sessions(eyes):
    first, second = look(eyes, painted(9), painted(9))
    assert (first.units, second.units) == (1, 0)
    assert second.output is first.output
    eyes.start(JobKey("another session", "look"), PictureJob(painted(9)))
    (again,) = eyes.step([StepRequest(JobKey("another session", "look"), 1)])
    assert again.units == 0
    assert again.output is first.output
    both = look(eyes, painted(10), painted(10), at_once=2)
    assert both[0].output is both[1].output


def test_a_mark_names_bytes_model_precision_and_size(create, eyes, kind):
    (here,), (there,) = embedded(eyes, painted(9)), embedded(eyes, painted(8))
    assert PICTURE_MARK.fullmatch(here.mark)
    assert here.mark != there.mark
    (same,) = embedded(create(), painted(9))
    assert same.mark == here.mark
    for other in ({"picture_tokens": 9}, {"dtype": "bfloat16"}):
        (differs,) = embedded(create(**other), painted(9))
        assert differs.mark != here.mark


def test_a_large_picture_is_made_smaller(create):
    engine = create(picture_tokens=48)
    for width, height in ((1600, 1200), (3000, 40), (40, 3000), (16, 16)):
        (picture,) = embedded(engine, painted(3, width, height))
        assert 0 < picture.tokens <= 48
        assert (picture.width > picture.height) == (width > height)


def test_what_is_remembered_is_bounded(create):
    engine = create(remembered_tokens=100)
    (first,) = embedded(engine, painted(50))
    for number in range(60, 70):
        embedded(engine, painted(number))
        assert engine.tokens_remembered <= 100
    (again,) = look(engine, painted(50))
    assert again.units == 1
    assert equal(again.output, first)
    none = create(remembered_tokens=0)
    assert [r.units for r in look(none, painted(1), painted(1))] == [1, 1]
    assert none.tokens_remembered == 0


def test_a_picture_at_which_the_processor_fails_fails_alone(eyes, monkeypatch):
    cut = eyes.tower.patches

    def fails(data: bytes):
        if data == painted(90):
            raise RuntimeError("no such filter")
        return cut(data)

    monkeypatch.setattr(eyes.tower, "patches", fails)
    bad, good = look(eyes, painted(90), painted(91), at_once=2)
    assert bad.error == "looking failed: no such filter"
    assert isinstance(good.output, EmbeddedPicture)


def test_a_released_picture_is_not_looked_at(eyes):
    keys = [JobKey("s", f"released{n}") for n in range(2)]
    for n, key in enumerate(keys):
        eyes.start(key, PictureJob(painted(80 + n)))
    eyes.release(keys[0])
    gone, stays = eyes.step([StepRequest(key, 1) for key in keys])
    assert (gone.output, gone.units, gone.finished) == (None, 0, True)
    assert isinstance(stays.output, EmbeddedPicture)
    assert look(eyes, painted(80))[0].units == 1


def test_pictures_of_other_patches_are_refused_when_it_is_loaded(kind, weights, tmp_path):
    import json
    import shutil

    from session_server.types.errors import EngineFault

    folder = shutil.copytree(weights, tmp_path / "other")
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"patch_size": 12}))
    engine = kind.eyes.create({"weights": str(folder), "dtype": "float32"}, ModelStore(tmp_path))
    with pytest.raises(EngineFault, match="patches of 12 pixels"):
        engine.load()


def test_it_says_what_it_is(eyes):
    capabilities = eyes.capabilities
    assert dataclasses.replace(capabilities, max_batch=1, slots=None, sees=False) == (
        type(capabilities)(Stage.VISION, 1)
    )
    assert capabilities.sees
