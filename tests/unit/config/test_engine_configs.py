"""The configurations for big thinkers are whole, and each of their engines' options is one that the engine knows."""

from dataclasses import replace
from pathlib import Path

import pytest

from engines.base import Stage
from engines.model_store import ModelStore
from engines.registry import factory, is_streaming, streaming_factory
from session_server.config import load
from session_server.errors import ModelsMissing
from session_server.runtime.models import missing_models, require_models

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


def test_the_configuration_with_eyes_is_the_default_one_but_for_them() -> None:
    plain, seeing = load().config, load(Path("cpu-vision.yaml")).config
    eyes = seeing.graph.stage(Stage.VISION)
    assert eyes is not None
    assert factory(eyes.engine)(eyes.options, ModelStore()).capabilities.stage is Stage.VISION
    rest = tuple(s for s in seeing.graph.stages if s is not eyes)
    thinker = next(s for s in rest if s.stage is Stage.THINKER)
    assert thinker.engine == "cpu.grounded_smollm2"
    as_plain = tuple(replace(s, engine="cpu.smollm2") if s is thinker else s for s in rest)
    assert as_plain == plain.graph.stages
    assert replace(seeing, graph=plain.graph) == plain


def test_models_of_vision_are_missed_only_where_something_looks(tmp_path: Path) -> None:
    flags = {"models.folder": str(tmp_path)}
    plain = missing_models(load(flags=flags).config)
    seeing = missing_models(load(Path("cpu-vision.yaml"), flags=flags).config)
    assert seeing == [*plain, "nanodet.onnx", "centernet.onnx"]
    with pytest.raises(ModelsMissing, match="models fetch --vision"):
        require_models(load(Path("cpu-vision.yaml"), flags=flags).config)
