"""Profiles by name, from configs/profiles, or by path."""

from __future__ import annotations

from pathlib import Path

from engines.sim.cost_profile import Profile, load_profile
from session_server.config.sources import shipped_folder
from session_server.runtime.simulation.host_setup import scheduler_params, with_eyes
from session_server.runtime.simulation.spec import SimulationSpec
from session_server.types.errors import ConfigError


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
