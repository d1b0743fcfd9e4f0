"""Whatever stands in one place of a shipped configuration: it holds, or one line names the place; never another exception.

Each example changes one value of one file in `configs/` and asks for all that is known before an engine loads: the effective
configuration, and each engine's options. The big engines' packages are not needed: their options are read by their own readers.
"""

from __future__ import annotations

import copy
import datetime
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings, strategies as st

from engines.duplex.options import MoshiOptions
from engines.model_store.store import ModelStore
from engines.omni.options import (
    TalkerOptions,
    ThinkerOptions,
    VisionOptions,
    VocoderOptions,
    read_options,
)
from engines.options import by_type, wrong_option
from engines.registry import duplex_factory, is_streaming
from session_server.config import Config, LoadedConfig
from session_server.config.sources import effective
from session_server.host.stage_assembly import registered_engine, registered_streaming
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.property

CONFIGS = {
    path.name: yaml.safe_load(path.read_text()) for path in sorted(Path("configs").glob("*.yaml"))
}
STORE = ModelStore(Path("none"))
OMNI: Mapping[str, Callable[[Mapping[str, object]], object]] = {
    "omni.qwen3_vision": lambda given: read_options(given, VisionOptions()),
    "omni.qwen3_thinker": lambda given: read_options(given, ThinkerOptions()),
    "omni.qwen3_talker": lambda given: read_options(given, TalkerOptions()),
    "omni.qwen3_code2wav": lambda given: read_options(given, VocoderOptions()),
}
Step = str | int
Place = tuple[Step, ...]

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 0.5, -0.5, 1 << 40, 10**400, -(10**400), 10**5000, float("nan"), float("inf"), -float("inf"),
    "", " ", "x", "\0", "é" * 300, "8", "1e9", "yes", b"bytes", datetime.date(2026, 11, 30),
    datetime.datetime(2026, 11, 30, 8, tzinfo=datetime.UTC),
    [], [[]], [None], ["x"], [float("nan")], {}, {"x": 1}, {"": None}, {1: 2}, {None: 3}, {"a": {"b": {"c": [float("inf")]}}},
]  # fmt: skip


def places(value: object, at: Place = ()) -> Iterator[Place]:
    """Every place in a tree, branches and leaves."""
    if at:
        yield at
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*at, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from places(item, (*at, number))


PLACES = [(name, place) for name, tree in CONFIGS.items() for place in places(tree)]


def changed(name: str, place: Place, value: object, *, beside: bool) -> dict[str, Any]:
    """The file's tree with `value` there; `beside`: under a name that nobody knows, next to it."""
    tree: Any = copy.deepcopy(CONFIGS[name])
    at = tree
    for step in place[:-1]:
        at = at[step]
    if not beside:
        at[place[-1]] = value
    elif isinstance(at, dict):
        at["nonsense"] = value
    else:
        at.append(value)
    return tree


def require_options(loaded: LoadedConfig) -> None:
    """Make each engine, as far as its options go and its packages are here. Raises ConfigError."""
    try:
        _make_engines(loaded.config)
    except ConfigError as error:
        if "needs a package" not in str(error) and "needs packages" not in str(error):
            raise


def _make_engines(config: Config) -> None:
    if config.graph.duplex is not None:
        name, options = config.graph.duplex.engine, config.graph.duplex.options
        try:
            if name == "moshi.duplex":
                by_type(options, MoshiOptions())
            else:
                duplex_factory(name, "graph.engine")(options, STORE)
        except ValueError as error:
            raise wrong_option(error, "graph") from error
        return
    for spec in config.graph.stages:
        if spec.engine in OMNI:
            try:
                OMNI[spec.engine](spec.engine_options)
            except ValueError as error:
                raise spec.wrong_option(error) from error
        elif spec.stage.value == "thinker" and is_streaming(spec.engine):
            registered_streaming(spec, STORE)()
        else:
            registered_engine(spec, STORE)()


def dotted(place: Place) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return path.removeprefix(".")


def names_it(said: str, place: Place, *, beside: bool) -> bool:
    """Whether the line says the place, or begins with a path above or below it."""
    at = dotted(place[:-1]) if beside else dotted(place)
    path = said.partition(": ")[0]
    if place[-1] == "hears":  # what hears by itself decides which stages there must be
        at = "graph.stages"
    return at in said or at.startswith(path) or path.startswith(at)


@settings(max_examples=500)
@given(st.sampled_from(PLACES), st.sampled_from(ODD), st.sampled_from([False, False, False, True]))
@example(("cpu.yaml", ("server", "port")), 10**5000, False)
@example(("sim-duplex.yaml", ("graph", "options")), "", False)
@example(("sim-duplex.yaml", ("graph", "options", "slots")), float("nan"), False)
def test_one_wrong_value_is_named_or_it_holds(
    where: tuple[str, Place], value: object, beside: bool
) -> None:
    name, place = where
    try:
        loaded = effective(name, changed(name, place, value, beside=beside))
        require_options(loaded)
        loaded.settings()
    except ConfigError as error:
        said = str(error)
        assert "\n" not in said
        assert len(said) < 2000
        assert names_it(said, place, beside=beside), said
