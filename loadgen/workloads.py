"""What a workload's fields may be: every one has a range, and a complaint names it (`workload.turns: ...`).

Ranges are wide: what lies outside is a slip or has no meaning, and would end a long run in a traceback or in figures that are
nonsense. Units are those of the fields: seconds in `_s`, probabilities in 0..1.

Workloads as YAML scenarios: how users behave and over which network, by name or by path.

A scenario has `about`, `workload` (fields of `Workload`), `network` (fields of `NetworkModel`) and may `inherit` another by
name; a section's keys replace the other's one by one, a length that states its `kind` replaces the other's whole. A trace
(`session-loadgen trace`) is a scenario too: `system_tokens` and `sessions` stand in place of `workload`. Every complaint
is a ConfigError that names file and key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from session_server.config.shape import build
from session_server.config.sources import shipped_folder
from session_server.simulation.spec import (
    CAMERAS,
    CameraUse,
    Distribution,
    NetworkModel,
    Workload,
    traced,
)
from session_server.simulation.trace import read_trace
from session_server.types.errors import ConfigError

KINDS = ("lognormal", "exponential", "uniform", "constant")
ARRIVALS = ("closed", "poisson", "gamma", "ramp")

_DAY_S = 86_400.0
_TOKENS = 1_000_000

RANGES: dict[str, tuple[float, float]] = {
    "prompt_tokens_least": (0, _TOKENS),
    "barge_in": (0, 1),
    "barge_in_least_s": (0, _DAY_S),
    "backchannel": (0, 1),
    "backchannel_per_s": (0, 10),
    "false_start_per_min": (0, 600),
    "early_start": (0, 1),
    "wait_limit_s": (0.1, _DAY_S),
    "call_limit_s": (0, 7 * _DAY_S),
    "hang_up": (0, 1),
    "drop": (0, 1),
    "turns": (0, 1_000_000),
    "burst_cv": (0.01, 100),
    "ramp_s": (0, _DAY_S),
    "system_tokens": (0, _TOKENS),
    "kv_tokens_per_session": (0, _TOKENS),
}

CAMERA_RANGES: dict[str, tuple[float, float]] = {
    "fps": (0.1, 240),
    "width": (16, 4096),
    "height": (16, 4096),
    "share": (0, 1),
}

MOST_OF_SPAN: dict[str, float] = {
    "speech_s": 3_600,
    "barge_speech_s": 3_600,
    "backchannel_s": 60,
    "prompt_tokens": _TOKENS,
    "answer_tokens": _TOKENS,
    "think_least_s": _DAY_S,
    "think_s": _DAY_S,
    "barge_in_at": 1,
    "backchannel_apart_s": _DAY_S,
    "false_start_s": 60,
    "early_start_s": 60,
    "opening_s": _DAY_S,
}
"""The longest that makes sense, for what is drawn from a span."""
_MOST_SIGMA = 5.0


def complaints(workload: Workload) -> list[str]:
    """One line for each fault, with the field's name; none for a workload that can be played."""
    found = [
        f"workload.{name}: must be within {low:g} and {high:g}, not {value}"
        for name, (low, high) in RANGES.items()
        if not low <= (value := getattr(workload, name)) <= high  # so is a NaN
    ]
    for one in fields(workload):
        value = getattr(workload, one.name)
        if isinstance(value, Distribution):
            # the mean of this one comes from `backchannel_per_s`
            rate_elsewhere = one.name == "backchannel_apart_s"
            faults = _of_span(value, MOST_OF_SPAN[one.name], rate_elsewhere)
            found += [f"workload.{one.name}.{text}" for text in faults]
    if workload.camera is not None:
        found += [f"workload.camera.{text}" for text in _of_camera(workload.camera)]
    return found + list(_of_pairs(workload))


def _of_camera(camera: CameraUse) -> Iterator[str]:
    for name, (low, high) in CAMERA_RANGES.items():
        if not low <= (value := getattr(camera, name)) <= high:
            yield f"{name}: must be within {low:g} and {high:g}, not {value}"
    if camera.kind not in CAMERAS:
        yield f"kind: must be one of {', '.join(CAMERAS)}, not {camera.kind!r}"
    if camera.kind == "clip" and not camera.path:
        yield "path: a clip needs the path of a video file (`run`: --camera-path)"
    if camera.kind == "screen" and camera.path:
        yield "path: does not go with kind screen"


def _of_pairs(workload: Workload) -> Iterator[str]:
    """What two fields cannot be together."""
    if workload.barge_in + workload.backchannel > 1:
        yield "workload.backchannel: barge_in and backchannel together are more than 1"
    if 0 < workload.turns < 1:
        yield f"workload.turns: a session has at least one, or 0 for no end, not {workload.turns}"
    if workload.trace is not None:
        return
    if workload.arrivals not in ARRIVALS:
        yield f"workload.arrivals: must be one of {', '.join(ARRIVALS)}, not {workload.arrivals!r}"
    elif workload.arrivals in ("poisson", "gamma") and not workload.turns:
        yield f"workload.turns: 0 (no end) does not go with {workload.arrivals} arrivals: nobody would leave"


def _of_span(span: Distribution, most: float, rate_elsewhere: bool) -> Iterator[str]:
    if span.kind not in KINDS:
        yield f"kind: must be one of {', '.join(KINDS)}, not {span.kind!r}"
        return
    if not 0 <= span.sigma <= _MOST_SIGMA:
        yield f"sigma: must be within 0 and {_MOST_SIGMA:g}, not {span.sigma}"
    if not 0 <= span.low <= most:
        yield f"low: must be within 0 and {most:g}, not {span.low}"
    if not span.high >= span.low:
        yield f"high: must not be below low ({span.low}), and not {span.high}"
    if span.kind == "uniform":
        if span.high > most:
            yield f"high: must be at most {most:g}, not {span.high}"
    elif not 0 <= span.median <= most:
        yield f"median: must be within 0 and {most:g}, not {span.median}"
    needs_median = span.kind == "lognormal" or (span.kind == "exponential" and not rate_elsewhere)
    if needs_median and span.median == 0:
        yield "median: must be above 0"


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a file says."""

    about: str
    workload: Workload = field(default_factory=Workload)
    network: NetworkModel = field(default_factory=NetworkModel)


def workload_names() -> list[str]:
    return sorted({path.name.removesuffix(".yaml") for path in _shipped()})


def find_workload(name: str) -> Scenario:
    """A scenario of configs/workloads by its name, or any by its path (which ends in .yaml)."""
    label, content = _read(name, ())
    if "sessions" in content:
        return _traced(name, label, content)
    said = {"about": "", **_with_kinds(content)}
    scenario: Scenario = build(Scenario, said, lambda _: f"workload {label}")
    named = replace(scenario.workload, name=Path(name).stem)
    faults = complaints(named)
    if not scenario.about.strip():
        faults.append("about: is missing: one line that says who these users are")
    if faults:
        raise ConfigError(f"workload {label}: {'; '.join(faults)}")
    return replace(scenario, workload=named)


def _traced(name: str, label: str, content: Mapping[str, Any]) -> Scenario:
    """A trace is played as it is: only the network can be stated beside it."""
    rest = {key: content[key] for key in ("about", "network") if key in content}
    trace = {key: value for key, value in content.items() if key not in ("name", *rest)}
    about = {"about": "what the users of a recorded run did"}
    scenario: Scenario = build(Scenario, about | rest, lambda _: f"workload {label}")
    read = read_trace(trace, f"workload {label}")
    return replace(scenario, workload=traced(read, str(content.get("name", Path(name).stem))))


def _shipped() -> list[Any]:
    folder = shipped_folder("configs") / "workloads"
    files = folder.iterdir() if folder.is_dir() else ()
    return [file for file in files if file.name.endswith(".yaml")]


def _read(name: str, seen: Sequence[str]) -> tuple[str, dict[str, Any]]:
    label, text = _text(name)
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as fault:
        raise ConfigError(f"workload {label}: not YAML: {' '.join(str(fault).split())}") from fault
    if not isinstance(content, dict):
        raise ConfigError(f"workload {label}: must be a mapping")
    parent = content.pop("inherit", None)
    if parent is None:
        return label, content
    if not isinstance(parent, str) or label in seen:
        raise ConfigError(f"workload {label}: inherit: must name another workload")
    if parent not in workload_names():
        raise ConfigError(f"workload {label}: inherit: {_unknown(parent)}")
    return label, _merged(_read(parent, (*seen, label))[1], content)


def _text(name: str) -> tuple[str, str]:
    """Label for complaints, and the file's text."""
    if name.endswith(".yaml"):
        try:
            return name, Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            reason = fault.strerror if isinstance(fault, OSError) else "is not UTF-8 text"
            raise ConfigError(f"workload {name}: {reason}") from fault
    for file in _shipped():
        if file.name == f"{name}.yaml":
            return name, file.read_text(encoding="utf-8")
    raise ConfigError(_unknown(name))


def _unknown(name: str) -> str:
    return f"no workload {name}; there are {', '.join(workload_names())}"


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        nested = isinstance(old, dict) and isinstance(value, dict) and "kind" not in value
        out[key] = _merged(old, value) if nested and isinstance(old, dict) else value
    return out


def _with_kinds(content: dict[str, Any]) -> dict[str, Any]:
    """`Span` wants a median, a uniform length needs none."""
    section = content.get("workload")
    if not isinstance(section, dict):
        return content
    lengths = {
        key: {"median": 0.0, **value}
        for key, value in section.items()
        if isinstance(value, dict) and "kind" in value and key != "camera"
    }
    return {**content, "workload": {**section, **lengths}}
