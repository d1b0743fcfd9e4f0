"""What is compared: a policy with a chunk rule and perhaps other parameters, under a setting that all share.

Turns names and `NAME=VALUE` texts into a `SimulationSpec`. Whatever is wrong raises a ConfigError that names it and
lists what there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from loadgen.workloads import Scenario, complaints, find_workload
from session_server.config.limits import bounds_of
from session_server.config.shape import convert, hints
from session_server.simulation.host_setup import check, find_profile
from session_server.simulation.spec import CameraUse, NetworkModel, SimulationSpec, Workload
from session_server.types.errors import ConfigError

POLICIES = ("fcfs", "liveserve", "deadline")
CHUNKINGS = ("stock", "adaptive")
RUN_FIELDS = (
    "speculate", "slices_ms", "tokens_run", "frames_run", "max_sessions", "kv_pool_tokens", "silence_ms",
    "release_ms",
)  # fmt: skip
"""Fields of a run that `--set` may change beside the scheduler's parameters."""
WARM_UP_S = 60.0
_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}

Sets = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """`sets`: names and values as the user typed them."""

    name: str
    policy: str
    chunking: str
    sets: Sets = ()


@dataclass(frozen=True, slots=True)
class LabSetting:
    """All that candidates of one comparison have in common. `barge_in` None: the workload's."""

    profile: str = "qwen3-omni-h200"
    workload: str = "mixed"
    seconds: float = 400.0
    warm_up_s: float | None = None
    barge_in: float | None = None
    admission: bool = False
    replicas: int = 1
    turn_mode: str = "server_vad"
    sets: Sets = ()

    def left_out_s(self) -> float:
        """The warm-up: as wanted, or a fixed one, of a short run a quarter."""
        return min(WARM_UP_S, self.seconds / 4) if self.warm_up_s is None else self.warm_up_s


def parse_sets(texts: Iterable[str]) -> Sets:
    """`NAME=VALUE` each."""
    pairs = []
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise ConfigError(f"{text!r} is not NAME=VALUE")
        pairs.append((name.strip(), value.strip()))
    return tuple(pairs)


def candidate(policy: str, chunking: str) -> Candidate:
    _known("policy", policy, POLICIES)
    _known("chunking", chunking, CHUNKINGS)
    return Candidate(f"{policy}/{chunking}", policy, chunking)


def parse_variant(text: str) -> Candidate:
    """`NAME:POLICY[,RULE][,X=V..]`, adaptive chunks unless a rule is named."""
    name, colon, rest = text.partition(":")
    policy, *others = [part.strip() for part in rest.split(",")]
    if not name or not colon or not policy:
        raise ConfigError(f"--variant {text!r} is not NAME:POLICY[,RULE][,X=V..]")
    rules = [part for part in others if "=" not in part]
    if len(rules) > 1:
        raise ConfigError(
            f"--variant {name}: there is more than one chunk rule: {', '.join(rules)}"
        )
    base = candidate(policy, rules[0] if rules else "adaptive")
    return replace(base, name=name, sets=parse_sets(part for part in others if "=" in part))


def spec_of(setting: LabSetting, one: Candidate, sessions: int, seed: int) -> SimulationSpec:
    """The run of a candidate; its own sets win over the setting's."""
    scenario = find_workload(setting.workload)
    sets = {**dict(setting.sets), **dict(one.sets)}
    scenario, run, overrides = _apply(sets, scenario)
    if setting.barge_in is not None and setting.barge_in + scenario.workload.backchannel > 1:
        raise ConfigError("--barge-in and the workload's backchannel together are more than 1")
    try:
        spec = SimulationSpec(
            profile=setting.profile, workload=scenario.workload, policy=one.policy, chunking=one.chunking,
            sessions=sessions, seconds=setting.seconds, warm_up_s=setting.left_out_s(), barge_in=setting.barge_in,
            seed=seed, admission=setting.admission, replicas=setting.replicas, network=scenario.network,
            turn_mode=setting.turn_mode, overrides=overrides, **run,
        )  # fmt: skip
    except ValueError as fault:
        raise ConfigError(str(fault)) from fault
    check(spec)
    return spec


def check_turns(spec: SimulationSpec) -> None:
    """Raises ConfigError for a profile without turns, of which there is no service level."""
    if find_profile(spec.profile).kind == "duplex":
        raise ConfigError(f"profile {spec.profile} is a lockstep model without turns: use simulate")


def _apply(
    sets: Mapping[str, str], scenario: Scenario
) -> tuple[Scenario, dict[str, Any], tuple[tuple[str, float | str], ...]]:
    """Scenario, fields of the run, parameters of the scheduler."""
    network: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    camera: dict[str, Any] = {}
    run: dict[str, Any] = {}
    overrides = []
    for name, text in sets.items():
        section, _, key = name.rpartition(".")
        if section == "network":
            network[key] = _value(NetworkModel, key, text, name)
        elif section == "workload":
            workload[key] = _value(Workload, key, text, name)
        elif section == "workload.camera":
            camera[key] = _value(CameraUse, key, text, name)
        elif section:
            raise ConfigError(
                f"--set {name}: there are network.NAME, workload.NAME, workload.camera.NAME and plain names"
            )
        elif name in RUN_FIELDS:
            run[name] = _value(SimulationSpec, name, text, name)
        else:
            overrides.append((name, _within(name, _parsed(text))))
    if camera:
        workload["camera"] = replace(scenario.workload.camera or CameraUse(), **camera)
    try:
        changed = replace(
            scenario,
            workload=replace(scenario.workload, **workload),
            network=replace(scenario.network, **network),
        )
    except ValueError as fault:
        raise ConfigError(f"--set: {fault}") from fault
    if faults := complaints(changed.workload):
        raise ConfigError(f"--set: {'; '.join(faults)}")
    return changed, run, tuple(overrides)


def _value(cls: type, key: str, text: str, name: str) -> Any:  # noqa: ANN401
    """`text` as the type of that field, which must be a plain one."""
    plain = {f.name for f in fields(cls) if hints(cls)[f.name] in (int, float, bool, str)}
    if key not in plain:
        raise ConfigError(f"--set {name}: no such number; there are {', '.join(sorted(plain))}")
    kind = hints(cls)[key]
    if kind is str:
        return text
    return convert(kind, _parsed(text), lambda _: "--set", name)


def _within(name: str, value: float | str) -> float | str:
    """The bounds of the operator's configuration hold in a simulation, too."""
    bounds = bounds_of(f"scheduler.{name}")
    low, high = bounds.low, bounds.high
    if isinstance(value, int | float) and not low <= value <= high:  # so is a NaN
        raise ConfigError(f"--set {name}: {value} is not within {low:g} and {high:g}")
    return value


def _parsed(text: str) -> float | str:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _known(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise ConfigError(f"no {what} {name}; there are {', '.join(known)}")
