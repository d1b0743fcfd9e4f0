"""Discrete-event simulation of the real core, host and scheduler on a virtual clock.

`Replica` runs one host; the engines are cost models from a profile, the transport is a network model, and the users are
whoever is put into its seats: the load generator does, and its `simulation.simulate(spec)` is the way in.
"""

from __future__ import annotations

from engines.sim.cost_profile import Profile as Profile
from session_server.recording.recorder import replay as replay
from session_server.runtime.simulation.profiles import (
    check as check,
    find_profile as find_profile,
    profile_names as profile_names,
)
from session_server.runtime.simulation.spec import (
    CAMERAS as CAMERAS,
    CameraUse as CameraUse,
    NetworkModel as NetworkModel,
    SimulationReport as SimulationReport,
    SimulationSpec as SimulationSpec,
    Span as Span,
    Workload as Workload,
    traced as traced,
)
from session_server.runtime.simulation.trace import (
    Trace as Trace,
    read_trace as read_trace,
)
