"""A change of policy, chunk rule, cost model or user shows itself here, figure by figure.

What is meant to change is written anew by `python -m tests.sim.golden_runs --write`, and explained in its commit.
"""

from __future__ import annotations

import pytest

from tests.sim.golden_runs import FOLDER, differences, kept, run, specs

pytestmark = pytest.mark.sim

SPECS = specs()


@pytest.mark.parametrize("name", SPECS)
def test_figures_are_those_that_were_kept(name: str):
    found = list(differences(kept(name), run(SPECS[name])))
    assert not found, "\n".join(
        ["python -m tests.sim.golden_runs --write, if this is meant:", *found]
    )


def test_no_figures_are_kept_of_a_run_that_is_gone():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(SPECS)


def test_the_runs_are_under_pressure_and_tell_policies_apart():
    """Figures that no policy can change would guard nothing."""
    names = [
        f"{policy}-{rule}"
        for policy in ("fcfs", "liveserve", "deadline")
        for rule in ("stock", "adaptive")
    ]
    found = [kept(name) for name in names]
    waits = [one["slo"]["p90"] for one in found]
    assert len(set(waits)) == len(waits)
    assert all(one["stages"]["talker"]["mean_batch"] > 1.2 for one in found)
    assert len({one["wasted_audio_ratio"] for one in found}) == len(found)


def test_a_difference_is_named_with_both_figures():
    was, now = {"slo": {"p90": 1.0, "held": True}, "gone": 1}, {"slo": {"p90": 2.0, "held": True}}
    assert list(differences(was, now)) == ["slo.p90: 1.0 -> 2.0", "gone: 1 -> None"]
    assert not list(differences(was, was))
