"""The simulation as the load generator's commands see it: what to run, and how."""

from __future__ import annotations

from session_server.runtime.simulation import (
    Look as Look,
    NetworkModel as NetworkModel,
    SimulationReport as SimulationReport,
    SimulationSpec as SimulationSpec,
    Span as Span,
    Watch as Watch,
    Workload as Workload,
    check as check,
    find_profile as find_profile,
    hopeless as hopeless,
    profile_names as profile_names,
    simulate as simulate,
)
