"""Photographs that a person has labelled, looked at by the real models. Skipped where the pictures or the models are absent."""

from pathlib import Path

import pytest

from engines.model_store.store import ModelStore
from session_server.client.look import PictureReport, looks
from session_server.host.prompt import described

pytestmark = [pytest.mark.integration, pytest.mark.models]

TRUE = {
    "astronaut.png": {"person"},
    "cat_pipecat.jpg": {"cat"},
    "chelsea.png": {"cat"},
    "flower.jpg": set(),
    "grace_hopper.jpg": {"person", "tie"},
    "rocket.jpg": set(),
}
"""What of the 80 kinds is in each, by looking at it. The flowers grow in a garden: they are no potted plant."""


PHOTOGRAPHS = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "photos"


def photographs() -> list[Path]:
    if not PHOTOGRAPHS.is_dir():
        pytest.skip("no photographs beside the checkout: ../shared/data/photos")
    if ModelStore().missing_for_vision():
        pytest.skip("the models of vision were not fetched: session-server models fetch --vision")
    return sorted(PHOTOGRAPHS.iterdir())


@pytest.fixture(scope="module")
def seen() -> dict[str, PictureReport]:
    return {one.path.name: one for one in looks(ModelStore(), photographs())}


def test_no_photograph_is_left_without_a_label(seen: dict[str, PictureReport]) -> None:
    assert set(seen) == set(TRUE)


@pytest.mark.parametrize("name", sorted(TRUE))
def test_nothing_is_surely_there_that_is_not(seen: dict[str, PictureReport], name: str) -> None:
    evidence = seen[name].evidence
    assert evidence is not None
    assert {one.kind for one in evidence.objects if one.sure} <= TRUE[name]


@pytest.mark.parametrize("name", ["astronaut.png", "cat_pipecat.jpg", "chelsea.png"])
def test_what_fills_the_picture_is_found(seen: dict[str, PictureReport], name: str) -> None:
    evidence = seen[name].evidence
    assert evidence is not None
    assert TRUE[name] <= {one.kind for one in evidence.objects if one.sure}
    assert f"1 {next(iter(TRUE[name]))} (centre, close)" in described(evidence)


def test_a_file_that_is_no_picture_does_not_end_the_others(tmp_path: Path) -> None:
    photograph = photographs()[0]
    bad = tmp_path / "notes.txt"
    bad.write_text("no picture")
    found = list(looks(ModelStore(), [bad, tmp_path / "absent.png", photograph], read=False))
    assert found[0].error == "The picture is no whole JPEG, PNG, WEBP, GIF picture."
    assert found[1].error == "No such file or directory"
    assert found[2].error is None
