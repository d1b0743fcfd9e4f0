"""A graph of `kind: duplex`, what does not go with it, and the shipped files of this kind."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from engines.duplex.options import MoshiOptions
from engines.graph import Graph, RestSpec, WordsSpec
from engines.registry import DUPLEX
from session_server.config import load
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", ["moshi", "sim-duplex"])
def test_the_shipped_files_hold(name: str) -> None:
    config = load(Path(f"configs/{name}.yaml"))
    spec = config.config.graph.duplex
    assert spec is not None
    assert spec.engine in DUPLEX
    assert not config.config.graph.stages
    shown = {setting.key for setting in config.settings()}
    assert {"graph.kind", "graph.engine", "graph.options.slots"} <= shown


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"engine": ""}, "graph.engine: must name an engine"),
        ({"stages": {}}, "graph.stages: unknown key; known are engine, kind,"),
        ({"options": [1]}, "graph.options: must be a mapping"),
        ({"options": []}, r"graph.options: must be a mapping, not \[\]"),
        ({"options": ""}, "graph.options: must be a mapping, not ''"),
        ({"options": 0}, "graph.options: must be a mapping, not 0"),
        ({"options": {3: 4}}, "graph.options: the name 3 must be text"),
        ({"kind": "simplex"}, "graph.kind: must be duplex, or left out"),
        ({"tick_limit_s": 0}, "graph.tick_limit_s: must be seconds"),
        ({"load_limit_s": True}, "graph.load_limit_s: must be seconds"),
        ({"placement": "moon"}, "graph.placement: must be thread or process, not 'moon'"),
        ({"placement": []}, "graph.placement: must be thread or process"),
        ({"rest": 5}, "graph.rest: must be a mapping, not 5"),
        ({"rest": {"after": 5}}, "graph.rest.after: unknown key; known are after_s,"),
        ({"rest": {"after_s": 1}}, "graph.rest.after_s: must be at least 2, not 1"),
        ({"rest": {"after_s": 0}}, "graph.rest.after_s: must be seconds"),
        ({"rest": {"below_dbfs": 3}}, "graph.rest.below_dbfs: must be dBFS in -120..0, not 3"),
        ({"rest": {"wait_limit_s": "x"}}, "graph.rest.wait_limit_s: must be seconds"),
        ({"words": {}}, "graph.words.engine: must name an engine, such as cpu.moonshine"),
        ({"words": {"engine": "x", "niceness": 20}}, "graph.words.niceness: must be a whole"),
        ({"words": {"engine": "x", "max_waiting": 0}}, "graph.words.max_waiting: must be a whole"),
        ({"words": {"engine": "x", "slots": 1}}, "graph.words.slots: unknown key"),
    ],
)
def test_a_wrong_key_is_named(change: dict[str, Any], complaint: str) -> None:
    good = {"kind": "duplex", "engine": "sim.duplex"}
    assert Graph.from_mapping(good).duplex is not None
    with pytest.raises(ConfigError, match=complaint):
        Graph.from_mapping({**good, **change})


def test_sections_that_may_be_left_out_have_defaults_and_are_shown() -> None:
    plain = Graph.from_mapping({"kind": "duplex", "engine": "sim.duplex"}).duplex
    assert plain is not None
    assert (plain.placement, plain.rest, plain.words) == ("thread", None, None)
    flags = {"graph.rest.after_s": 5, "graph.words.engine": "sim.asr"}
    config = load(Path("configs/sim-duplex.yaml"), flags=flags)
    spec = config.config.graph.duplex
    assert spec is not None
    assert spec.rest == RestSpec(after_s=5.0)
    assert spec.words == WordsSpec("sim.asr")
    shown = {setting.key: setting.value for setting in config.settings()}
    assert shown["graph.rest.wait_limit_s"] == 10.0
    assert shown["graph.words.engine"] == "sim.asr"


@pytest.mark.parametrize(
    ("flag", "value"), [("server.workers", 2), ("observability.record_file", "record.jsonl")]
)
def test_what_does_not_go_with_a_duplex_graph_is_named(flag: str, value: object) -> None:
    with pytest.raises(ConfigError, match=flag):
        load(Path("configs/sim-duplex.yaml"), flags={flag: value})


def test_every_option_of_moshi_is_in_its_file() -> None:
    names = {field.name for field in fields(MoshiOptions)}
    written = yaml.safe_load(Path("configs/moshi.yaml").read_text())["graph"]["options"]
    assert names == set(written)
