"""What to simulate, as plain data: users, network and scheduler.

Nothing here acts. A spec and its seed decide every byte of the report. Random lengths come from the
generator that the run's seed gave.

Units: seconds in `_s`, milliseconds in `_ms`, probabilities in 0..1.

Source: docs/simulation.md says where the defaults come from.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, field
from typing import Any

from session_server.simulation.trace import Trace

POLICIES = ("fcfs", "liveserve", "deadline")
CHUNKINGS = ("stock", "adaptive")
_LONGEST_MS = 60_000.0
_RUN_BOUNDS = {
    "slices_ms": (1, 60_000),
    "tokens_run": (1, 10_000),
    "frames_run": (1, 10_000),
    "silence_ms": (0, 60_000),
    "release_ms": (0, 60_000),
    "max_sessions": (0, 10_000_000),
}
TURN_TOKENS = 1_000
"""Room in the thinker's memory for the words of one turn and its answer."""
ARRIVALS = ("closed", "poisson", "gamma", "ramp", "trace")


@dataclass(frozen=True, slots=True)
class Distribution:
    """A length that is drawn anew each time: lognormal(`median`, `sigma`), or exponential, or uniform, cut to
    `low`..`high`. `kind`: lognormal, exponential (mean `median`), uniform (`low`..`high`) or constant (`median`)."""

    median: float
    sigma: float = 0.0
    low: float = 0.0
    high: float = 1e9
    kind: str = "lognormal"


CAMERAS = ("none", "static", "object", "drift", "pan", "screen", "clip")


@dataclass(frozen=True, slots=True)
class CameraUse:
    """Users with a camera: `share` of them, evenly spread. `kind`: a still scene with sensor noise, one with an object that
    comes and goes, one whose exposure drifts, a moving camera, a screen, a `clip` of a video file, or none: those who
    would have one have it off, for a run to compare with. `path`: the file of a clip; of static, object, drift and pan a
    photo instead of the drawn scene. `fps`: frames that the camera gives; what becomes of them is the server's affair."""

    kind: str = "object"
    fps: float = 15.0
    width: int = 640
    height: int = 480
    share: float = 1.0
    path: str = ""

    @property
    def is_on(self) -> bool:
        """Some film."""
        return self.kind != "none" and self.share > 0

    def belongs_to(self, user: int) -> bool:
        """Whether the user of that index, from 0, is one of them."""
        return int((user + 1) * self.share + _SMALL) > int(user * self.share + _SMALL)


_SMALL = 1e-9
"""Shares like 1 / 3 are a little less."""


@dataclass(frozen=True, slots=True)
class Workload:
    """How users behave.

    `speech_s`: how long a user speaks; `prompt_tokens`: added to the prompt by a turn, beside its speech;
    `answer_tokens`: length of an answer; `think_s`: from the end of playback to the next word, on top of
    `think_least_s`. `arrivals`: closed (N sessions, always), poisson and gamma (sessions come at the rate that keeps N
    of them, gamma in bursts of coefficient of variation `burst_cv`), ramp (N come evenly over `ramp_s`), trace (the
    sessions of `trace` come as they came, the first N of them, again and again, and nobody takes their place).
    `turns`: mean turns of a session, geometric; a closed loop opens another one at once.
    `barge_in`, `backchannel`: probability per answer, at `barge_in_at` of its length but not within `barge_in_least_s`.
    `backchannel_per_s`: "mhm" again and again, so many a second of answer, `backchannel_apart_s` low..high apart.
    `false_start_per_min`: noise that sounds like speech, `false_start_s` long, whenever the user does not speak.
    `early_start`: share of questions that begin `early_start_s` before the answer has ended.
    `hang_up`: probability per answer that the user leaves in it; `drop`: that the connection is lost in it.
    `opening_s`: from a session's opening to the first word. `wait_limit_s`: no user waits longer for the server;
    `call_limit_s`: no session lasts longer, 0: nothing limits it.
    `system_tokens`: what every prompt begins with; `kv_tokens_per_session`: room in the thinker's memory for each of the
    N sessions, 0: as the spec or the profile says. `camera` None: nobody has one.
    """

    name: str = "mixed"
    speech_s: Distribution = Distribution(2.5, 0.6, 0.4, 20.0)
    barge_speech_s: Distribution = Distribution(0.0, 0.0, 1.5, 4.0, "uniform")
    backchannel_s: Distribution = Distribution(0.0, 0.0, 0.32, 0.77, "uniform")
    prompt_tokens: Distribution = Distribution(60.0, 0.0, 0.0, 1000.0, "exponential")
    prompt_tokens_least: int = 40
    answer_tokens: Distribution = Distribution(36.6, 0.8, 6, 220)
    think_least_s: Distribution = Distribution(0.0, 0.0, 0.5, 1.5, "uniform")
    think_s: Distribution = Distribution(4.0, 0.0, 0.0, 60.0, "exponential")
    barge_in: float = 0.3
    barge_in_at: Distribution = Distribution(0.0, 0.0, 0.0, 1.0, "uniform")
    barge_in_least_s: float = 0.0
    backchannel: float = 0.0
    backchannel_per_s: float = 0.0
    backchannel_apart_s: Distribution = Distribution(0.0, 0.0, 3.0, 12.0, "exponential")
    false_start_per_min: float = 0.0
    false_start_s: Distribution = Distribution(0.0, 0.0, 0.1, 0.5, "uniform")
    early_start: float = 0.0
    early_start_s: Distribution = Distribution(0.15, 0.5, 0.02, 0.6)
    opening_s: Distribution = Distribution(0.0, 0.0, 0.0, 1.0, "uniform")
    wait_limit_s: float = 30.0
    call_limit_s: float = 0.0
    hang_up: float = 0.0
    drop: float = 0.0
    turns: float = 12.0
    arrivals: str = "closed"
    burst_cv: float = 3.0
    ramp_s: float = 20.0
    system_tokens: int = 0
    kv_tokens_per_session: int = 0
    camera: CameraUse | None = None
    trace: Trace | None = None


def traced(trace: Trace, name: str) -> Workload:
    """What a trace's users did, once more. Interruptions, rests and lengths are in the trace."""
    return Workload(
        name,
        barge_in=0.0,
        turns=0.0,
        arrivals="trace",
        system_tokens=trace.system_tokens,
        trace=trace,
    )


@dataclass(frozen=True, slots=True)
class NetworkModel:
    """One way between client and server, the same in both directions, in order (as TCP delivers).

    `delay_ms` plus a normal jitter of `jitter_ms`, never negative; a packet is lost with probability `loss` and then
    comes `loss_delay_ms` later. `ack_interval_ms` 0: a stock client, which acknowledges nothing. `preroll_ms`: what
    the client's jitter buffer gathers before it plays.
    """

    delay_ms: float = 20.0
    jitter_ms: float = 5.0
    loss: float = 0.0
    loss_delay_ms: float = 150.0
    ack_interval_ms: int = 200
    preroll_ms: float = 0.0

    def __post_init__(self) -> None:
        for name in (
            "delay_ms",
            "jitter_ms",
            "loss",
            "loss_delay_ms",
            "ack_interval_ms",
            "preroll_ms",
        ):
            value = getattr(self, name)
            most = 1.0 if name == "loss" else _LONGEST_MS
            if not 0 <= value <= most:  # false for a NaN too
                raise ValueError(f"network.{name} must be in 0..{most:g}, not {value}")


@dataclass(frozen=True, slots=True)
class SimulationSpec:
    """One run. `profile`: a name in configs/profiles or a path. `barge_in` None: the workload's.

    `sessions` are shared out over `replicas` independent hosts. `admission` off: every turn is let in, in its order.
    `max_sessions` 0: no limit. `overrides`: scheduler parameters by name, for sweeps of their constants. `warm_up_s`:
    responses that begin before it are left out. `slices_ms`: audio of one message to the client. `tokens_run`,
    `frames_run`: tokens and frames that thinker and talker make between two decisions, as multi-step schedulers do; more
    than 1 makes a run cheaper and coarser. `kv_pool_tokens`: the thinker's memory for prompts; 0: the profile's. `silence_ms`: silence that ends a
    turn of server_vad. `release_ms`: how long the detector goes on reporting speech after its end.
    """

    profile: str = "qwen3-omni-h200"
    workload: Workload = field(default_factory=Workload)
    policy: str = "deadline"
    chunking: str = "adaptive"
    sessions: int = 32
    seconds: float = 400.0
    warm_up_s: float = 60.0
    barge_in: float | None = None
    seed: int = 0
    admission: bool = False
    max_sessions: int = 0
    replicas: int = 1
    network: NetworkModel = field(default_factory=NetworkModel)
    turn_mode: str = "server_vad"
    silence_ms: int = 500
    release_ms: int = 40
    speculate: bool = False
    slices_ms: int = 100
    tokens_run: int = 1
    frames_run: int = 1
    kv_pool_tokens: int = 0
    overrides: tuple[tuple[str, float | str], ...] = ()

    def __post_init__(self) -> None:
        _one_of("policy", self.policy, POLICIES)
        _one_of("chunking", self.chunking, CHUNKINGS)
        _one_of("workload.arrivals", self.workload.arrivals, ARRIVALS)
        if (self.workload.arrivals == "trace") is (self.workload.trace is None):
            raise ValueError(
                "workload.arrivals: trace goes with a trace, and a trace with nothing else"
            )
        if self.sessions < 1 or not 1 <= self.replicas <= self.sessions:
            raise ValueError("need at least one session a replica")
        if self.seconds <= self.warm_up_s:
            raise ValueError("the run must be longer than its warm-up")
        for name, (least, most) in _RUN_BOUNDS.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be in {least}..{most}, not {getattr(self, name)}")
        if self.kv_pool_tokens and self.kv_pool_tokens < TURN_TOKENS:
            raise ValueError(
                f"kv_pool_tokens must be 0 (the profile's) or at least {TURN_TOKENS}, not {self.kv_pool_tokens}"
            )
        for name, value in self.overrides:
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number, not {value}")


@dataclass(slots=True)
class SimulationReport:
    """What came out: `figures` is plain data, with the keys of a load run's report and policy, chunking, workload,
    profile, seed and sessions beside them. The same spec gives the same JSON, byte for byte."""

    figures: dict[str, Any]

    def to_json(self) -> str:
        return json.dumps(self.figures, indent=2, sort_keys=True) + "\n"


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")


def draw(span: Distribution, rng: random.Random) -> float:
    """One value of a span."""
    match span.kind:
        case "lognormal":
            value = rng.lognormvariate(math.log(span.median), span.sigma)
        case "exponential":
            value = rng.expovariate(1 / span.median)
        case "uniform":
            value = rng.uniform(span.low, span.high)
        case "constant":
            value = span.median
        case _:
            raise ValueError(f"unknown kind of span: {span.kind!r}")
    return min(max(value, span.low), span.high)
