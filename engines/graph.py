"""A graph of `kind: duplex` as a value: one engine that hears and speaks, in place of stages and edges.

How many sessions it holds at once is an option of the engine (its slots); with `rest` more may be open, of which those in which
nothing is said give up their slot. Times are seconds.

The model graph as values: stages, their engines and limits, and the bounded edges between them.

Owns the shape that a `graph:` mapping must have. `Graph.from_mapping` checks everything that can be known
without loading an engine; whatever is wrong is a ConfigError that names the key.

Units: an edge's capacity counts its unit (tokens, clauses, chunks) waiting for one response; times are seconds.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from engines import options as values
from engines.base import Stage
from session_server.types.errors import ConfigError, shown

DUPLEX = "duplex"
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


class Placement(enum.Enum):
    """Where a stage runs."""

    THREAD = "thread"
    PROCESS = "process"


class EdgeUnit(enum.Enum):
    """What an edge carries and counts."""

    TOKEN = "token"
    CLAUSE = "clause"
    CHUNK = "chunk"
    FRAME = "frame"


_UNIT_OF = {
    (Stage.THINKER, Stage.TALKER): EdgeUnit.TOKEN,
    (Stage.TALKER, Stage.CODEC): EdgeUnit.CLAUSE,
    (Stage.CODEC, Stage.VOCODER): EdgeUnit.CHUNK,
}
_UNIT_OF_FRAMES = {
    (Stage.THINKER, Stage.TALKER): EdgeUnit.TOKEN,
    (Stage.TALKER, Stage.VOCODER): EdgeUnit.FRAME,
}
"""Where there is no codec: the talker makes frames while its text is being written."""
_NEEDED = (Stage.ASR, Stage.THINKER, Stage.TALKER, Stage.VOCODER)
"""Stages that a spoken conversation cannot do without; a thinker that hears does without ASR. The turn model is optional,
and so is the codec."""


_STAGE_KEYS = {
    "engine", "max_batch", "placement", "step_limit_s", "niceness", "hears", "options", "device",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One node. A step longer than `step_limit_s` counts as hung. `niceness`: what its thread gives way by on a busy
    machine, 0 (not at all) to 19, as in nice(1). `device`: given to the engine as its option of that name. `hears`: a thinker that takes the user's audio itself."""

    stage: Stage
    engine: str
    max_batch: int = 1
    placement: Placement = Placement.THREAD
    step_limit_s: float = 10.0
    niceness: int = 0
    hears: bool = False
    options: Mapping[str, object] = field(default_factory=dict)
    device: str | None = None

    @property
    def engine_options(self) -> Mapping[str, object]:
        """`options`, with the device."""
        return self.options if self.device is None else {**self.options, "device": self.device}

    def wrong_option(self, error: ValueError) -> ConfigError:
        """What the engine said of its options, by their path."""
        return values.wrong_option(error, f"graph.stages.{self.stage.value}", self.device)


@dataclass(frozen=True, slots=True)
class EdgeSpec:
    """A bounded queue of one response; at `capacity` its producer stops."""

    source: Stage
    target: Stage
    unit: EdgeUnit
    capacity: int


@dataclass(frozen=True, slots=True)
class Graph:
    """A checked graph. Stages and edges are in the order of the data flow; with `duplex` (`kind: duplex`) there are none."""

    stages: tuple[StageSpec, ...]
    edges: tuple[EdgeSpec, ...]
    duplex: DuplexSpec | None = None

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object], where: str = "graph") -> Graph:
        """Read a `graph:` section; `where` is its dotted path, for messages."""
        values.mapping(mapping, where)
        if "kind" in mapping:
            if mapping["kind"] != DUPLEX:
                raise ConfigError(
                    f"{where}.kind: must be {DUPLEX}, or left out for a graph of stages,"
                    f" not {shown(mapping['kind'])}"
                )
            return cls((), (), duplex_spec(mapping, where))
        values.only(mapping, {"stages", "edges"}, where)
        stages = _stages(
            values.mapping(mapping.get("stages"), f"{where}.stages"), f"{where}.stages"
        )
        edges = _edges(mapping.get("edges"), f"{where}.edges", {spec.stage for spec in stages})
        return cls(stages, edges)

    def stage(self, stage: Stage) -> StageSpec | None:
        return next((spec for spec in self.stages if spec.stage is stage), None)

    def capacity(self, source: Stage, target: Stage) -> int:
        """Capacity of that edge. Raises KeyError when there is none."""
        for edge in self.edges:
            if edge.source is source and edge.target is target:
                return edge.capacity
        raise KeyError((source, target))


def _stages(mapping: Mapping[str, object], where: str) -> tuple[StageSpec, ...]:
    specs: dict[Stage, StageSpec] = {}
    for name, value in mapping.items():
        stage = _stage(name, where)
        specs[stage] = _stage_spec(
            stage, values.mapping(value, f"{where}.{name}"), f"{where}.{name}"
        )
    hears = Stage.THINKER in specs and specs[Stage.THINKER].hears
    for stage in _NEEDED:
        if stage not in specs and not (stage is Stage.ASR and hears):
            raise ConfigError(f"{where}.{stage.value}: this stage is missing")
    return tuple(specs[stage] for stage in Stage if stage in specs)


def _stage_spec(stage: Stage, mapping: Mapping[str, object], where: str) -> StageSpec:
    values.only(mapping, _STAGE_KEYS, where)
    options = values.options(mapping, where)
    return StageSpec(
        stage,
        values.engine(mapping.get("engine"), f"{where}.engine", "cpu.moonshine"),
        values.integer(mapping.get("max_batch", 1), f"{where}.max_batch", 1, 1024),
        _placement(mapping.get("placement", Placement.THREAD.value), f"{where}.placement"),
        values.seconds(mapping.get("step_limit_s", 10.0), f"{where}.step_limit_s"),
        values.integer(mapping.get("niceness", 0), f"{where}.niceness", 0, 19),
        _hears(mapping.get("hears", False), stage, f"{where}.hears"),
        options,
        _device(mapping.get("device"), options, f"{where}.device"),
    )


def _placement(value: object, where: str) -> Placement:
    try:
        return Placement(value)
    except ValueError:
        known = ", ".join(placement.value for placement in Placement)
        raise ConfigError(f"{where}: must be one of {known}, not {shown(value)}") from None


def _device(value: object, options: Mapping[str, object], where: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: must name a device, such as cuda:1, not {shown(value)}")
    if "device" in options:
        raise ConfigError(f"{where}: options.device says it too; leave one of them out")
    return value


def _hears(value: object, stage: Stage, where: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: must be true or false, not {shown(value)}")
    if value and stage is not Stage.THINKER:
        raise ConfigError(f"{where}: only the thinker can take the user's audio itself")
    return value


def _edges(value: object, where: str, present: set[Stage]) -> tuple[EdgeSpec, ...]:
    if not isinstance(value, list):
        raise ConfigError(f"{where}: must be a list of edges")
    units = _units(present)
    edges: dict[tuple[Stage, Stage], EdgeSpec] = {}
    for number, entry in enumerate(value):
        edge = _edge(
            values.mapping(entry, f"{where}[{number}]"), f"{where}[{number}]", present, units
        )
        pair = (edge.source, edge.target)
        if pair in edges:
            raise ConfigError(f"{where}[{number}]: this edge is there twice")
        edges[pair] = edge
    for source, target in units:
        if (source, target) not in edges:
            raise ConfigError(f"{where}: the edge {source.value} -> {target.value} is missing")
    return tuple(edges[pair] for pair in units)


Units = Mapping[tuple[Stage, Stage], EdgeUnit]


def _units(present: set[Stage]) -> Units:
    return _UNIT_OF if Stage.CODEC in present else _UNIT_OF_FRAMES


def _edge(mapping: Mapping[str, object], where: str, present: set[Stage], units: Units) -> EdgeSpec:
    values.only(mapping, {"from", "to", "unit", "capacity"}, where)
    source = _stage(mapping.get("from"), f"{where}.from")
    target = _stage(mapping.get("to"), f"{where}.to")
    for key, stage in (("from", source), ("to", target)):
        if stage not in present:
            raise ConfigError(f"{where}.{key}: the graph has no stage {stage.value}")
    unit = units.get((source, target))
    if unit is None:
        raise ConfigError(f"{where}: {source.value} cannot feed {target.value}")
    if mapping.get("unit", unit.value) != unit.value:
        raise ConfigError(
            f"{where}.unit: {source.value} -> {target.value} carries {unit.value}s,"
            f" not {shown(mapping['unit'])}"
        )
    capacity = values.integer(mapping.get("capacity"), f"{where}.capacity", 1, 1_000_000)
    return EdgeSpec(source, target, unit, capacity)


def _stage(name: object, where: str) -> Stage:
    try:
        return Stage(name)
    except ValueError:
        known = ", ".join(stage.value for stage in Stage)
        raise ConfigError(f"{where}: unknown stage {shown(name)}; known are {known}") from None
