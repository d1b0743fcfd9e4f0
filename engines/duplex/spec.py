"""A graph of `kind: duplex` as a value: one engine that hears and speaks, in place of stages and edges.

How many sessions it holds at once is an option of the engine (its slots); with `rest` more may be open, of which those in which
nothing is said give up their slot. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engines import graph_values as values
from session_server.types.errors import ConfigError, shown

KIND = "duplex"
THREAD, PROCESS = "thread", "process"
_KEYS = {
    "kind", "engine", "placement", "tick_limit_s", "load_limit_s", "rest", "words", "options",
}  # fmt: skip
LEAST_REST_S = 2.0
"""By then all that the user said has been heard: no more than that waits for its tick."""


@dataclass(frozen=True, slots=True)
class RestSpec:
    """A session rests once the model has not had the floor, and nothing louder than `below_dbfs` (the peak) came from its user,
    for `after_s`, and somebody needs its slot. One that speaks again waits for a slot no longer than `wait_limit_s`."""

    after_s: float = 30.0
    below_dbfs: float = -80.0
    wait_limit_s: float = 10.0


@dataclass(frozen=True, slots=True)
class WordsSpec:
    """A recogniser beside the model, for transcripts of what users say. `niceness`: of its thread, which must not keep a tick.
    `max_waiting`: recognitions of all sessions; what comes beyond them is dropped."""

    engine: str
    niceness: int = 10
    max_waiting: int = 8
    step_limit_s: float = 10.0
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DuplexSpec:
    """A tick longer than `tick_limit_s`, or a load longer than `load_limit_s`, counts as hung. `placement`: a thread of the
    server's process, or a process of the engine's own. `rest` None: a session keeps its slot. `words` None: no transcripts."""

    engine: str
    tick_limit_s: float = 5.0
    load_limit_s: float = 600.0
    options: Mapping[str, object] = field(default_factory=dict)
    placement: str = THREAD
    rest: RestSpec | None = None
    words: WordsSpec | None = None


def duplex_spec(mapping: Mapping[str, object], where: str) -> DuplexSpec:
    """Read a `graph:` section of this kind. Raises ConfigError naming the key."""
    values.only(mapping, _KEYS, where)
    placement = mapping.get("placement", THREAD)
    if placement not in (THREAD, PROCESS):
        raise ConfigError(f"{where}.placement: must be thread or process, not {shown(placement)}")
    rest, words = mapping.get("rest"), mapping.get("words")
    return DuplexSpec(
        values.engine(mapping.get("engine"), f"{where}.engine", "moshi.duplex"),
        values.seconds(mapping.get("tick_limit_s", 5.0), f"{where}.tick_limit_s"),
        values.seconds(mapping.get("load_limit_s", 600.0), f"{where}.load_limit_s"),
        values.options(mapping, where),
        str(placement),
        None if rest is None else _rest(values.mapping(rest, f"{where}.rest"), f"{where}.rest"),
        None
        if words is None
        else _words(values.mapping(words, f"{where}.words"), f"{where}.words"),
    )


def _rest(section: Mapping[str, object], where: str) -> RestSpec:
    values.only(section, {"after_s", "below_dbfs", "wait_limit_s"}, where)
    after_s = values.seconds(section.get("after_s", 30.0), f"{where}.after_s")
    if after_s < LEAST_REST_S:
        raise ConfigError(f"{where}.after_s: must be at least {LEAST_REST_S:g}, not {after_s:g}")
    return RestSpec(
        after_s,
        _level(section.get("below_dbfs", -80.0), f"{where}.below_dbfs"),
        values.seconds(section.get("wait_limit_s", 10.0), f"{where}.wait_limit_s"),
    )


def _level(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -120 <= value <= 0:
        raise ConfigError(f"{where}: must be dBFS in -120..0, not {shown(value)}")
    return float(value)


def _words(section: Mapping[str, object], where: str) -> WordsSpec:
    known = {"engine", "niceness", "max_waiting", "step_limit_s", "options"}
    values.only(section, known, where)
    return WordsSpec(
        values.engine(section.get("engine"), f"{where}.engine", "cpu.moonshine"),
        values.integer(section.get("niceness", 10), f"{where}.niceness", 0, 19),
        values.integer(section.get("max_waiting", 8), f"{where}.max_waiting", 1, 1024),
        values.seconds(section.get("step_limit_s", 10.0), f"{where}.step_limit_s"),
        values.options(section, where),
    )
