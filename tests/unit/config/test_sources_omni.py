"""The Omni configurations are whole: their graphs have the shape of their engines, and each option is one that the engine knows."""

from pathlib import Path

import pytest

from engines.base import Capabilities, ChunkShape, Stage
from engines.graph import EdgeUnit, Graph
from session_server.config import load
from session_server.host.stage_assembly import require_fit
from session_server.http.session_factory import hearing_of
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit


BOTH = pytest.mark.parametrize("name", ["qwen3-omni.yaml", "qwen2.5-omni.yaml"])


@BOTH
def test_it_has_four_stages_and_hears_by_itself(name):
    graph = load(Path(name)).config.graph
    assert [spec.stage for spec in graph.stages] == [
        Stage.VISION, Stage.THINKER, Stage.TALKER, Stage.VOCODER,
    ]  # fmt: skip
    assert [edge.unit for edge in graph.edges] == [EdgeUnit.TOKEN, EdgeUnit.FRAME]
    hearing = hearing_of(graph)
    assert hearing.natively
    assert not hearing.words


def test_recognition_beside_it_is_for_the_words_alone():
    stages = {
        "asr": {"engine": "sim.asr"},
        "thinker": {"engine": "sim.thinker", "hears": True},
        "talker": {"engine": "sim.talker"},
        "vocoder": {"engine": "sim.vocoder"},
    }
    edges = [
        {"from": "thinker", "to": "talker", "capacity": 8},
        {"from": "talker", "to": "vocoder", "capacity": 8},
    ]
    hearing = hearing_of(Graph.from_mapping({"stages": stages, "edges": edges}))
    assert hearing.natively
    assert hearing.words
    stages["talker"]["hears"] = True
    with pytest.raises(ConfigError, match=r"graph\.stages\.talker\.hears: only the thinker"):
        Graph.from_mapping({"stages": stages, "edges": edges})


def test_an_engine_that_cannot_do_its_part_of_the_graph_is_named():
    graph = load(Path("qwen3-omni.yaml")).config.graph
    deaf, hears = Capabilities(Stage.THINKER, 1), Capabilities(Stage.THINKER, 1, hears=True)
    clauses = Capabilities(Stage.TALKER, 1)
    frames = Capabilities(Stage.TALKER, 1, streams_text=True)
    require_fit(graph, {Stage.THINKER: hears, Stage.TALKER: frames})
    with pytest.raises(ConfigError, match=r"thinker\.hears: omni\.qwen3_thinker takes no audio"):
        require_fit(graph, {Stage.THINKER: deaf, Stage.TALKER: frames})
    with pytest.raises(ConfigError, match=r"graph\.stages\.codec: this stage is missing"):
        require_fit(graph, {Stage.THINKER: hears, Stage.TALKER: clauses})
    classic = load(Path("sim.yaml")).config.graph
    with pytest.raises(ConfigError, match=r"makes frames for the vocoder itself"):
        require_fit(classic, {Stage.THINKER: deaf, Stage.TALKER: frames})


def test_eyes_of_a_model_need_a_thinker_that_sees():
    thinker = "graph.stages.thinker.engine"
    graph = load(
        Path("cpu-vision.yaml"),
        flags={"graph.stages.vision.engine": "omni.qwen3_vision", thinker: "cpu.smollm2"},
    ).config.graph
    talker = Capabilities(Stage.TALKER, 1)
    eyes, sees = Capabilities(Stage.VISION, 1, sees=True), Capabilities(Stage.THINKER, 1, sees=True)
    detector, blind = Capabilities(Stage.VISION, 1), Capabilities(Stage.THINKER, 1)
    for vision, mind in ((eyes, sees), (detector, sees), (detector, blind)):
        require_fit(graph, {Stage.VISION: vision, Stage.THINKER: mind, Stage.TALKER: talker})
    with pytest.raises(
        ConfigError, match=r"stages\.vision: omni\.qwen3_vision .* cpu\.smollm2 takes"
    ):
        require_fit(graph, {Stage.VISION: eyes, Stage.THINKER: blind, Stage.TALKER: talker})


def test_an_edge_that_holds_no_whole_chunk_is_named():
    graph = load(Path("qwen2.5-omni.yaml")).config.graph
    hears = Capabilities(Stage.THINKER, 1, hears=True)
    frames = Capabilities(Stage.TALKER, 1, streams_text=True)

    def fits(shape: ChunkShape) -> None:
        vocoder = Capabilities(Stage.VOCODER, 1, chunk=shape)
        require_fit(graph, {Stage.THINKER: hears, Stage.TALKER: frames, Stage.VOCODER: vocoder})

    fits(ChunkShape(units=200, ahead=56))
    with pytest.raises(ConfigError, match="talker -> vocoder: capacity must be at least 257"):
        fits(ChunkShape(units=200, ahead=57))


@BOTH
def test_each_option_is_known_to_its_engine(name):
    pytest.importorskip("torch")
    from engines.model_store.store import ModelStore
    from engines.registry import factory

    for spec in load(Path(name)).config.graph.stages:
        engine = factory(spec.engine)(spec.options, ModelStore())
        assert engine.capabilities.stage is spec.stage
        assert engine.capabilities.max_batch == spec.max_batch
