"""The configuration with eyes, and what it needs."""

from dataclasses import replace
from pathlib import Path

import pytest

from engines.base import Stage
from engines.model_store import ModelStore
from engines.registry import factory
from session_server.config import load
from session_server.errors import ModelsMissing
from session_server.runtime.models import missing_models, require_models

pytestmark = pytest.mark.unit


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
