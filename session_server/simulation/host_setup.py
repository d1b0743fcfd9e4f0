"""What a simulated host is built from: an operator's parameters, and a profile's stages.

Profiles are found by name, from configs/profiles, or by path. Admission predicts with measured
steps; before there are any, with the profile's step times: each batch size to the power of two,
prompts and chunks of the sizes that the scheduler asks for.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from engines.base import Stage
from engines.graph import EdgeSpec, EdgeUnit, Graph, StageSpec
from engines.sim.cost_profile import Profile, StageCost, load_profile
from session_server.config.sources import shipped_folder
from session_server.scheduler.cost_model import CostModel
from session_server.scheduler.params import Chunking, PolicyName, SchedulerParams
from session_server.simulation.spec import SimulationSpec
from session_server.types.errors import ConfigError

_UNPACED_S = 10_000.0
_LEAD_CAP_S = {"fcfs": _UNPACED_S, "liveserve": 4.0, "deadline": 2.5}
"""fcfs runs ahead without end, as today's servers do; the others' caps are those that served them best."""
_LIVESERVE = {"safe_lead_s": 0.5, "safe_share": 1.0}
"""Its unknown constants: what a sweep found best for it (docs/policies.md)."""


def scheduler_params(spec: SimulationSpec, profile: Profile) -> SchedulerParams:
    """The operator's parameters for this run. Raises ValueError for an override that does not exist or fit."""
    known = {f.name: f.default for f in fields(SchedulerParams)}
    values: dict[str, Any] = {"cores": 1000.0, "text_ahead_s": 4.0, **profile.scheduler}
    values["chunk_ladder_s"] = tuple(values.get("chunk_ladder_s", known["chunk_ladder_s"]))
    stock = spec.chunking == "stock"
    values["lead_cap_s"] = _LEAD_CAP_S[spec.policy] + (values["chunk_ladder_s"][-1] * stock)
    if spec.policy == "liveserve":
        values.update(_LIVESERVE)
    if spec.policy == "fcfs":
        values["text_ahead_s"] = _UNPACED_S
    values["policy"] = PolicyName(spec.policy)
    values["chunking"] = Chunking.FIXED if stock else Chunking.LEAD
    values["max_sessions"] = spec.max_sessions // spec.replicas or 1_000_000
    values["transport_s"] = (2 * spec.network.delay_ms + 3 * spec.network.jitter_ms + 20.0) / 1000
    if not spec.admission:
        values["utilisation"] = 1e9
    for name, value in spec.overrides:
        if name not in known:
            raise ValueError(f"no scheduler parameter {name}; there are {', '.join(sorted(known))}")
        values[name] = _like(name, known[name], value)
    return SchedulerParams(**values)


def _like(name: str, default: object, value: float | str) -> object:
    """An override as its parameter's type; a ladder has slashes, like 0.32/0.64/2. Raises ValueError naming it."""
    wanted = "a number"
    try:
        if isinstance(default, tuple):
            wanted = "numbers with slashes between them, like 0.1/0.4"
            return tuple(float(part) for part in str(value).split("/"))
        if isinstance(default, enum.Enum):
            wanted = f"one of {', '.join(str(member.value) for member in type(default))}"
            return type(default)(
                "off" if value is False else value
            )  # YAML reads a bare off as false
        if isinstance(default, bool):
            wanted = "on or off"
            return {0: False, 1: True}[value]  # type: ignore[index]
        if isinstance(default, int):
            wanted = "a whole number"
            if isinstance(value, bool) or int(value) != float(value):
                raise ValueError
            return int(value)
        if isinstance(default, float) and not isinstance(value, bool):
            return float(value)
    except (ValueError, KeyError):
        pass
    raise ValueError(f"{name}: must be {wanted}, not {value!r}")


def with_eyes(profile: Profile, spec: SimulationSpec) -> Profile:
    """The profile without its vision stage, unless users have cameras that are on. Raises ValueError when it has none then."""
    camera = spec.workload.camera
    if camera is not None and camera.is_on:
        if Stage.VISION not in profile.stages:
            raise ValueError(
                f"workload.camera: profile {profile.name} has no vision stage, which cameras need"
            )
        return profile
    ears_only = dict(profile.stages)
    ears_only.pop(Stage.VISION, None)
    return replace(profile, stages=ears_only)


def graph_of(profile: Profile) -> Graph:
    """Stages as the profile has them; edges wide enough that only the policy holds anything back."""
    stages = tuple(
        StageSpec(stage, "sim.scripted", cost.max_batch, step_limit_s=1e6)
        for stage, cost in profile.stages.items()
    )
    if profile.streams_text:
        edges: tuple[EdgeSpec, ...] = (
            EdgeSpec(Stage.THINKER, Stage.TALKER, EdgeUnit.TOKEN, 256),
            EdgeSpec(Stage.TALKER, Stage.VOCODER, EdgeUnit.FRAME, 128),
        )
    else:
        edges = (
            EdgeSpec(Stage.THINKER, Stage.TALKER, EdgeUnit.TOKEN, 256),
            EdgeSpec(Stage.TALKER, Stage.CODEC, EdgeUnit.CLAUSE, 2),
            EdgeSpec(Stage.CODEC, Stage.VOCODER, EdgeUnit.CHUNK, 2),
        )
    return Graph(stages, edges)


def profile_names() -> list[str]:
    return sorted(path.stem for path in _folder().glob("*.yaml"))


def _folder() -> Path:
    return Path(str(shipped_folder("configs"))) / "profiles"


def find_profile(name: str) -> Profile:
    """A profile by name or path. Raises ConfigError when there is none."""
    if name.endswith(".yaml"):
        return load_profile(Path(name))
    path = _folder() / f"{name}.yaml"
    if path.is_file():
        return load_profile(path)
    raise ConfigError(f"no profile {name}; there are {', '.join(profile_names())}")


def check(spec: SimulationSpec) -> None:
    """Raises ConfigError when the profile or a parameter of the scheduler is wrong."""
    try:
        profile = find_profile(spec.profile)
        scheduler_params(spec, profile)
        with_eyes(profile, spec)
    except ValueError as fault:
        raise ConfigError(str(fault)) from fault


_CLAUSE_CHARS = 30
_PROMPTS = (32, 64, 128, 256, 512, 1024, 2048, 4096)


def teach(costs: CostModel, profile: Profile, params: SchedulerParams) -> None:
    """Put the profile's figures into `costs`."""
    for cost in profile.stages.values():
        for batch in _batches(cost.max_batch):
            for units in _units(cost.stage, profile, params):
                costs.observe(
                    cost.stage.value, batch, units, cost.step_ns(batch, _sum(cost, batch, units))
                )
        if cost.stage is Stage.THINKER:
            for tokens in _PROMPTS:
                if tokens <= params.prefill_tokens:
                    costs.observe(cost.stage.value, 1, tokens, cost.step_ns(0, 0, tokens))


def _batches(most: int) -> Iterator[int]:
    batch = 1
    while batch < most:
        yield batch
        batch *= 2
    yield most


def _units(stage: Stage, profile: Profile, params: SchedulerParams) -> tuple[int, ...]:
    """Sizes of the stage's steps: chunks of the ladder, a clause, or single tokens and frames."""
    if stage in (Stage.CODEC, Stage.VOCODER):
        frame_s = profile.unit_samples / profile.rate
        return tuple(max(1, round(audio_s / frame_s)) for audio_s in params.chunk_ladder_s)
    if stage is Stage.TALKER and not profile.streams_text:
        return (round(_CLAUSE_CHARS * profile.frames_per_char),)
    return (1,)


def _sum(cost: StageCost, batch: int, units: int) -> int:
    """What a step is priced by: the longest chunk where batching gains, else the sum."""
    if cost.stage in (Stage.CODEC, Stage.VOCODER) and cost.batch_gain is None:
        return batch * units
    return units if cost.stage in (Stage.CODEC, Stage.VOCODER) else batch
