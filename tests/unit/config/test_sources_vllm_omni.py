"""The configuration of Qwen3-Omni on vllm-omni is whole: its graph has the shape of its engines, and each option is one that its engine knows."""

from pathlib import Path

import pytest

from engines.base import Stage
from engines.graph import EdgeUnit
from engines.model_store.store import ModelStore
from engines.registry import factory, is_streaming, streaming_factory
from session_server.config import load
from session_server.host.stage_assembly import require_fit
from session_server.http.session_factory import hearing_of

pytestmark = pytest.mark.unit


def test_it_hears_by_itself_and_frames_go_straight_to_the_vocoder():
    graph = load(Path("qwen3-omni-vllm.yaml")).config.graph
    assert [spec.stage for spec in graph.stages] == [Stage.THINKER, Stage.TALKER, Stage.VOCODER]
    assert [edge.unit for edge in graph.edges] == [EdgeUnit.TOKEN, EdgeUnit.FRAME]
    assert hearing_of(graph).natively


def test_each_engine_can_be_made_from_its_options_and_fits_its_place():
    graph = load(Path("qwen3-omni-vllm.yaml")).config.graph
    capabilities = {}
    for spec in graph.stages:
        make = streaming_factory if is_streaming(spec.engine) else factory
        capabilities[spec.stage] = make(spec.engine)(spec.options, ModelStore()).capabilities
    assert all(can.stage is stage for stage, can in capabilities.items())
    require_fit(graph, capabilities)
    assert capabilities[Stage.TALKER].groups_frames
    assert capabilities[Stage.THINKER].holds
    assert len({str(spec.options["weights"]) for spec in graph.stages}) == 1
