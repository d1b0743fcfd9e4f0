"""The configurations for big thinkers are whole, and each of their engines' options is one that the engine knows."""

from pathlib import Path

import pytest

from engines.base import Stage
from engines.model_store.store import ModelStore
from engines.registry import is_streaming, streaming_factory
from session_server.config import load

pytestmark = pytest.mark.unit

CONFIGS = {
    "vllm-cpu.yaml": "vllm.thinker",
    "vllm-gpu.yaml": "vllm.thinker",
    "remote-openai.yaml": "remote.openai_chat",
}


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_its_thinker_can_be_made_from_its_options(name: str) -> None:
    config = load(Path(name)).config
    spec = config.graph.stage(Stage.THINKER)
    assert spec is not None
    assert spec.engine == CONFIGS[name]
    assert is_streaming(spec.engine)
    engine = streaming_factory(spec.engine)(spec.options, ModelStore())
    assert engine.capabilities.stage is Stage.THINKER
    assert engine.capabilities.max_batch >= config.scheduler.max_sessions // 2


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_it_says_how_to_set_it_up_and_holds_no_key(name: str) -> None:
    text = (Path("configs") / name).read_text()
    assert "session-server check" in text
    assert "api_key:" not in text
    used = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    options = [
        line for line in used if line.startswith(" " * 8) and ":" in line and "- [" not in line
    ]
    uncommented = [line.strip() for line in options if "#" not in line]
    assert len(uncommented) <= len(options) // 2, f"options without a word: {uncommented}"
