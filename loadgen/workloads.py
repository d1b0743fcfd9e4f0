"""Workloads as YAML scenarios: how users behave and over which network, by name or by path.

A scenario has `about`, `workload` (fields of `Workload`), `network` (fields of `NetworkModel`) and may `inherit` another by
name; a section's keys replace the other's one by one, a length that states its `kind` replaces the other's whole. A trace
(`session-loadgen trace`) is a scenario too: `system_tokens` and `sessions` stand in place of `workload`. Every complaint
is a ConfigError that names file and key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from loadgen.workload_bounds import complaints
from session_server.config.shape import build
from session_server.config.sources import shipped_folder
from session_server.runtime.simulation.spec import NetworkModel, Workload, traced
from session_server.runtime.simulation.trace import read_trace
from session_server.types.errors import ConfigError


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
