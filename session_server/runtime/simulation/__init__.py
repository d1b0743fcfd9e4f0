"""Discrete-event simulation of the real core, host and scheduler on a virtual clock.

`simulate(spec)` runs one; the engines are cost models from a profile and the transport is a network model.
"""

from __future__ import annotations

from session_server.runtime.recorder import replay as replay
from session_server.runtime.simulation.run import (
    check as check,
    find_profile as find_profile,
    profile_names as profile_names,
    simulate as simulate,
)
from session_server.runtime.simulation.spec import (
    NetworkModel as NetworkModel,
    SimulationReport as SimulationReport,
    SimulationSpec as SimulationSpec,
    Span as Span,
    Workload as Workload,
)
from session_server.runtime.simulation.watch import (
    Look as Look,
    Watch as Watch,
    hopeless as hopeless,
)
