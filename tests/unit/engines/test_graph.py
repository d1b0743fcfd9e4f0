"""A graph section is checked key by key; an engine is found by name."""

from __future__ import annotations

import copy
from unittest.mock import patch

import pytest

from engines.base import Stage
from engines.graph import EdgeUnit, Graph
from engines.model_store.store import ModelStore
from engines.registry import factory
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit

GOOD = {
    "stages": {
        "vocoder": {"engine": "sim.vocoder", "max_batch": 4},
        "asr": {"engine": "sim.asr"},
        "thinker": {"engine": "sim.thinker", "options": {"slots": 3}, "step_limit_s": 2},
        "talker": {"engine": "sim.talker", "placement": "thread"},
        "codec": {"engine": "sim.codec"},
    },
    "edges": [
        {"from": "codec", "to": "vocoder", "unit": "chunk", "capacity": 2},
        {"from": "thinker", "to": "talker", "unit": "token", "capacity": 256},
        {"from": "talker", "to": "codec", "capacity": 2},
    ],
}


def test_a_graph_comes_in_the_order_of_the_data_flow():
    graph = Graph.from_mapping(GOOD)
    assert [spec.stage.value for spec in graph.stages] == [
        "asr",
        "thinker",
        "talker",
        "codec",
        "vocoder",
    ]
    assert graph.stage(Stage.THINKER).options == {"slots": 3}
    assert graph.stage(Stage.TURN) is None
    assert graph.edges[0].unit is EdgeUnit.TOKEN
    assert graph.capacity(Stage.CODEC, Stage.VOCODER) == 2
    with pytest.raises(KeyError):
        graph.capacity(Stage.ASR, Stage.THINKER)


MISTAKES = [
    (("stages", "asr"), None, "graph.stages.asr"),
    (("stages", "oven"), {"engine": "x"}, "unknown stage 'oven'"),
    (("stages", "asr"), {}, "graph.stages.asr.engine"),
    (("stages", "asr"), "cpu", "graph.stages.asr: must be a mapping"),
    (("stages", "asr", "colour"), 1, "graph.stages.asr.colour: unknown key"),
    (("stages", "asr", "max_batch"), 0, "graph.stages.asr.max_batch"),
    (("stages", "asr", "max_batch"), True, "graph.stages.asr.max_batch"),
    (("stages", "asr", "placement"), "moon", "graph.stages.asr.placement"),
    (("stages", "asr", "step_limit_s"), -1, "graph.stages.asr.step_limit_s"),
    (("stages", "asr", "niceness"), 20, "graph.stages.asr.niceness"),
    (("stages", "asr", "niceness"), -1, "graph.stages.asr.niceness"),
    (("stages", "asr", "options"), [1], "graph.stages.asr.options"),
    (("stages", "asr", "options"), [], "graph.stages.asr.options: must be a mapping, not []"),
    (("stages", "asr", "options"), "", "graph.stages.asr.options: must be a mapping, not ''"),
    (("stages", "asr", "options"), 0, "graph.stages.asr.options: must be a mapping, not 0"),
    (("stages", "asr", "options"), {1: 2}, "graph.stages.asr.options: the name 1 must be text"),
    (("stages", "asr", "device"), "", "graph.stages.asr.device: must name a device"),
    (
        ("stages", "asr"),
        {"engine": "x", "device": "cuda", "options": {"device": "cpu"}},
        "graph.stages.asr.device: options.device says it too",
    ),
    (("kind",), "cascade", "graph.kind: must be duplex, or left out"),
    (("edges",), {}, "graph.edges: must be a list"),
    (("edges",), [], "thinker -> talker is missing"),
    (("edges", 0, "capacity"), 0, "graph.edges[0].capacity"),
    (("edges", 0, "unit"), "clause", "carries chunks"),
    (("edges", 0, "to"), "turn", "graph.edges[0].to: the graph has no stage turn"),
    (("edges", 0, "to"), "thinker", "codec cannot feed thinker"),
    (("edges", 1), {"from": "codec", "to": "vocoder", "capacity": 1}, "there twice"),
    (("wires",), [], "graph.wires: unknown key"),
]


@pytest.mark.parametrize(("path", "value", "message"), MISTAKES)
def test_a_mistake_names_its_key(path, value, message):
    mapping = copy.deepcopy(GOOD)
    place = mapping
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    with pytest.raises(ConfigError) as caught:
        Graph.from_mapping(mapping)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_engine_names_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match=r"graph\.x: unknown engine 'gpu\.magic'.*sim\.codec"):
        factory("gpu.magic", where="graph.x")
    assert factory("sim.codec")({}, ModelStore(tmp_path)).capabilities.stage is Stage.CODEC


def test_an_engine_whose_package_is_absent_says_so():
    known = {"odd.engine": "engines.no_such_family:create"}
    with (
        patch("engines.registry.ENGINES", known),
        pytest.raises(ConfigError, match=r"odd\.engine needs a package"),
    ):
        factory("odd.engine")


def test_a_number_too_long_to_print_is_refused_by_its_key():
    for kind, key in (
        ("stages", "graph.stages.asr.step_limit_s"),
        ("duplex", "graph.tick_limit_s"),
    ):
        mapping = copy.deepcopy(GOOD)
        mapping["stages"]["asr"]["step_limit_s"] = 10**5000
        duplex = {"kind": "duplex", "engine": "sim.duplex", "tick_limit_s": 10**5000}
        with pytest.raises(ConfigError, match=f"{key}: must be seconds in 0..3600, not .a int too"):
            Graph.from_mapping(mapping if kind == "stages" else duplex)
