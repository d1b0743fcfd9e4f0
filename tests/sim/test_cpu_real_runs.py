"""The simulation with `cpu-default` tells first audio of real runs on two cores within 30 %, from their traces.

`real_runs/*.yaml` are traces of runs of the default configuration at server_vad, 320 ms, barge-in 0.3, seed 3; the figures are
those of the runs' reports (milliseconds of the client's clock). The run of eight gave the profile its `per_session` by
its stage times, not by these figures; that of four gave nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.lab.engine_profile import LOOPBACK, RELEASE_MS
from loadgen.lab.simulation import simulate
from loadgen.workloads import find_workload
from session_server.simulation.spec import SimulationSpec

pytestmark = pytest.mark.sim

RUNS = Path(__file__).parent / "real_runs"


@pytest.mark.parametrize(
    ("name", "users", "p50", "p95"), [("four", 4, 645.0, 890.5), ("eight", 8, 790.0, 1445.5)]
)
def test_first_audio_is_near_that_of_the_real_run(
    name: str, users: int, p50: float, p95: float
) -> None:
    scenario = find_workload(str(RUNS / f"{name}.yaml"))
    spec = SimulationSpec(
        profile="cpu-default",
        workload=scenario.workload,
        sessions=users,
        seconds=130.0,
        warm_up_s=0.0,
        network=LOOPBACK,
        silence_ms=320,
        release_ms=RELEASE_MS,
        speculate=True,
    )
    found = simulate(spec).figures["ttfa_ms"]
    assert found["count"] >= 35
    assert found["p50"] == pytest.approx(p50, rel=0.3)
    assert found["p95"] == pytest.approx(p95, rel=0.3)
