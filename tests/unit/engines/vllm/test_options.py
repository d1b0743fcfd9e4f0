"""Wrong options are named; what is missing is told before anything is loaded."""

from pathlib import Path

import pytest

from engines.model_store.store import ModelStore
from engines.vllm.convert import converted, folder_name
from engines.vllm.options import read_options
from engines.vllm.thinker import create, missing
from session_server.types.errors import ModelsMissing

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "model"),
        ({"model": ""}, "model"),
        ({"model": "m", "slots": 3}, "slots"),
        ({"model": "m", "answers": 0}, "answers"),
        ({"model": "m", "answers": True}, "answers"),
        ({"model": "m", "context": 100.5}, "context"),
        ({"model": "m", "pacing": "fast"}, "pacing"),
        ({"model": "m", "short_answers": "yes"}, "short_answers"),
        ({"model": "m", "examples": [["only one"]]}, "examples"),
        ({"model": "m", "engine": {"max_num_seqs": 3}}, "engine.max_num_seqs"),
        ({"model": "m", "engine": []}, "engine"),
        ({"model": "m", "temperature": 9}, "temperature"),
    ],
)
def test_a_wrong_option_is_named(options: dict, named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}: "):
        create(options, ModelStore())


def test_what_is_missing_is_listed_each_with_its_cure(tmp_path: Path) -> None:
    lines = missing({"model": "smollm2-135m-instruct"}, ModelStore(tmp_path))
    assert any("python -m engines.vllm.convert" in line for line in lines)
    assert missing({"model": "m", "answers": 0}, ModelStore(tmp_path))[0].startswith(
        "option answers"
    )


@pytest.mark.parametrize(("files", "said"), [((), "config.json"), (("config.json",), "no weights")])
def test_a_folder_without_a_model_is_named(
    tmp_path: Path, files: tuple[str, ...], said: str
) -> None:
    for name in files:
        (tmp_path / name).write_text("{}")
    lines = missing({"model": str(tmp_path)}, ModelStore(tmp_path))
    assert any(said in line and str(tmp_path) in line for line in lines)
    absent = missing({"model": str(tmp_path / "absent")}, ModelStore(tmp_path))
    assert any("no folder" in line for line in absent)


def test_the_converted_model_is_found_by_the_sha256_of_its_source(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    with pytest.raises(ModelsMissing, match="convert"):
        converted(store)
    (tmp_path / folder_name()).mkdir()
    (tmp_path / folder_name() / "config.json").write_text("{}")
    assert converted(store) == tmp_path / folder_name()


def test_room_for_an_answer_is_kept_whatever_the_context() -> None:
    assert read_options({"model": "m", "context": 400}).longest_answer == 150
    assert read_options({"model": "m", "context": 8192}).longest_answer == 400
