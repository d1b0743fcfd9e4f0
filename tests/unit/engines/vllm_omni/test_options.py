"""Options of the engines on vllm-omni, and the deploy file that is made of them."""

import importlib.metadata
import sys
from pathlib import Path

import pytest

from engines.vllm_omni import launch, plugin
from engines.vllm_omni.options import read_model, read_thinker

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, r"weights: missing"),
        ({"weights": "w", "stages": {"vocoder": {}}}, r"stages\.vocoder: no such stage"),
        ({"weights": "w", "stages": {"talker": 3}}, r"stages\.talker: must be a mapping"),
        (
            {"weights": "w", "stages": {"talker": {"max_num_seqs": 3}}},
            r"stages\.talker\.max_num_seqs: has an option of its own",
        ),
        ({"weights": "w", "answers": 0}, r"answers: must be a whole number in 1\.\."),
        ({"weights": "w", "no_such": 1}, r"no_such: unknown option"),
        ({"weights": "w", "temperature": 3}, r"temperature: "),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, object], said: str):
    with pytest.raises(ValueError, match=said):
        read_thinker(options)


def test_talker_and_vocoder_take_the_weights_alone():
    assert read_model({"weights": "w"}).weights == "w"
    with pytest.raises(ValueError, match="answers: unknown option"):
        read_model({"weights": "w", "answers": 3})


def test_the_deploy_file_says_what_the_options_say():
    options = read_thinker(
        {
            "weights": "w",
            "answers": 3,
            "context": 1024,
            "first_frames": 1,
            "chunk_frames": 7,
            "stages": {"talker": {"devices": "1", "block_size": 64}},
        }
    )
    deploy = launch.deployment(options, on_cpu=True)
    thinker, talker, wave = deploy["stages"]
    assert [stage["stage_id"] for stage in deploy["stages"]] == [0, 1, 2]
    assert all(stage["max_num_seqs"] == 3 for stage in deploy["stages"])
    assert thinker["max_model_len"] == 1024
    assert (talker["devices"], talker["block_size"]) == ("1", 64)
    assert thinker["block_size"] == 32
    assert set(deploy["connectors"]) == {*talker["input_connectors"].values()}
    assert set(deploy["connectors"]) == {*wave["input_connectors"].values()}
    extra = deploy["connectors"]["shared_memory"]["extra"]
    assert extra["initial_codec_chunk_frames"] == 1
    assert extra["codec_chunk_frames"] == 7


def test_on_a_gpu_nothing_is_set_that_only_a_cpu_needs():
    deploy = launch.deployment(read_thinker({"weights": "w"}), on_cpu=False)
    assert "distributed_executor_backend" not in deploy
    assert not any("enforce_eager" in stage or "devices" in stage for stage in deploy["stages"])


def test_the_platform_is_found_by_processes_on_whose_path_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", [str(plugin.CHILD_PATH), *sys.path])
    (found,) = importlib.metadata.entry_points(group="vllm_omni.platform_plugins")
    assert found.value == "engines.vllm_omni.plugin:platform"


def test_what_is_missing_is_said_in_lines():
    lines = launch.missing({"weights": "/nowhere/at/all"}, None)  # type: ignore[arg-type]
    assert any("/nowhere/at/all has no config.json" in line for line in lines)
    assert launch.missing({}, None) == ["option weights: missing; the model's folder"]  # type: ignore[arg-type]


def test_locks_of_chunks_that_nobody_read_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(launch, "_LOCKS", tmp_path)
    names = ("shm_abcn1-77_0_0_lockfile.lock", "shm_abcn12-77_0_0_lockfile.lock", "abcn1-77_0_0")
    for name in names:
        (tmp_path / name).touch()
    launch.sweep("abcn1-")
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(names[1:])
