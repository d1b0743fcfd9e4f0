"""What `session-server check` says of Omni stages that cannot start here: nothing is loaded for it."""

import json
from pathlib import Path
from unittest.mock import patch

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from engines.model_store.store import ModelStore
from engines.omni.weights import QWEN2_5, part_bytes
from engines.registry import missing
from session_server.client.check import engine_findings
from session_server.config import load
from tests.integration.engines_omni.kinds import QWEN2_5 as KIND, QWEN3

pytestmark = pytest.mark.integration
STAGES = ("omni.qwen2_5_thinker", "omni.qwen2_5_talker", "omni.qwen2_5_token2wav")


@pytest.fixture(scope="module")
def folder(folders) -> Path:
    return folders(KIND)


def lines(engine: str, folder: Path, **options: object) -> list[str]:
    return missing(engine, {"weights": str(folder), **options}, ModelStore())


@pytest.mark.parametrize("engine", STAGES)
def test_nothing_is_missing_where_all_is_here(engine, folder):
    assert lines(engine, folder) == []


@pytest.mark.parametrize("engine", STAGES)
def test_weights_that_are_not_there_or_not_whole_are_named(engine, folder, tmp_path):
    nowhere = tmp_path / "none"
    (line,) = lines(engine, nowhere)
    assert line == (
        f"{nowhere} has no config.json: engine option weights must name the folder of a Qwen2.5-Omni model"
    )
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    assert lines(engine, tmp_path) == [
        f"{tmp_path} has no *.safetensors files: its download is not whole"
    ]
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model-1.safetensors").touch()
    assert lines(engine, tmp_path) == [
        f"{tmp_path} has no model-2.safetensors: its download is not whole"
    ]


def test_a_model_of_the_other_family_is_named(folders):
    (line,) = lines(STAGES[0], folders(QWEN3))
    assert line.endswith("is of a qwen3_omni_moe model; this engine runs qwen2_5_omni")


def test_a_gpu_that_is_not_here_or_too_small_is_named(folder):
    with patch("torch.cuda.is_available", return_value=False):
        assert lines(STAGES[1], folder, device="cuda") == [
            "engine option device: there is no cuda on this machine"
        ]
    needed = part_bytes(folder, QWEN2_5.talker, "bfloat16")
    assert needed > 1_000_000
    assert part_bytes(folder, QWEN2_5.talker, "float32") == 2 * needed
    with (
        patch("torch.cuda.is_available", return_value=True),
        patch("torch.cuda.device_count", return_value=1),
        patch("torch.cuda.mem_get_info", return_value=(needed - 1, 1 << 40)),
    ):
        (line,) = lines(STAGES[1], folder, device="cuda:0")
        assert line.startswith("the talker's weights take 2 MiB, and 2 MiB of cuda:0 are free")
    assert lines(STAGES[1], folder, device="warp")[0].startswith("engine option device: ")


def test_another_version_of_transformers_is_named(folder):
    with patch("engines.omni.weights.version", return_value="4.0.0"):
        (line,) = lines(STAGES[2], folder)
    assert line.startswith("transformers 4.0.0 is installed; this engine is written for 5.")


def test_check_sends_to_the_page_about_omni_models():
    config = load(KIND.config, flags={"graph.stages.vocoder.options.weights": "/nowhere"}).config
    findings = [
        finding for finding in engine_findings(config) if finding.name.startswith("vocoder")
    ]
    assert [finding.cure for finding in findings] == ["docs/omni.md"]
    assert "/nowhere has no config.json" in findings[0].detail
