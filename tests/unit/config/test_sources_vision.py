"""The configuration with eyes, and what it needs."""

from dataclasses import replace
from pathlib import Path

import pytest

from engines.base import Stage
from engines.model_store.store import ModelStore
from engines.registry import factory
from engines.vision.labels import KINDS
from session_server.client.models import missing_models, require_models
from session_server.config import load
from session_server.http.session_factory import video_offer
from session_server.protocol.extensions import VideoOffer, Vision
from session_server.types.errors import ModelsMissing

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


def test_clients_are_offered_what_the_eyes_are_within_the_operators_limits() -> None:
    assert video_offer(load().config) is None
    flags = {"video.max_fps": 3, "video.max_bytes": 50_000}
    detector = Vision("detector", classes=len(KINDS), ocr=True)
    assert video_offer(load(Path("cpu-vision.yaml"), flags=flags).config) == VideoOffer(
        detector, 3.0, 50_000
    )
    simulated = {"graph.stages.vision.engine": "sim.vision"}
    offer = video_offer(load(Path("configs/sim.yaml"), flags=simulated).config)
    assert offer == VideoOffer(Vision("simulation"))
    other = {"graph.stages.vision.engine": "mine.eyes"}
    offer = video_offer(load(Path("configs/sim.yaml"), flags=other).config)
    assert offer == VideoOffer(Vision("mine.eyes"))
