"""Golden runs: a handful of small simulations whose figures are kept exactly, so that a change of policy shows itself.

    python -m tests.sim.golden_runs            # which figures differ from those kept
    python -m tests.sim.golden_runs --write    # keep the present ones; look at `git diff tests/sim/golden` before a commit

The device is small (`_BATCH` answers at a time), so that few users press it and a run takes a second. Figures are of behaviour
only: no count of events or decisions, which a faster host may change.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engines.sim.cost_profile import Profile
from loadgen.lab.simulation import simulate
from loadgen.workloads import find_workload
from session_server.simulation.host_setup import find_profile
from session_server.simulation.spec import SimulationSpec

FOLDER = Path(__file__).parent / "golden"
_BATCH = 2
_LARGE_STAGES = ("thinker", "talker", "vocoder")
_SMALL = SimulationSpec(
    sessions=8, seconds=60.0, warm_up_s=10.0, workload=find_workload("closed-eager").workload
)
_KEPT = (
    "turns", "turns_ended", "slo", "ttfa_ms", "c50", "c100", "c200", "responses", "underruns", "underrun_ms",
    "goodput", "wasted_audio_ratio", "generated_audio_s", "barge_in", "backchannels",
    "false_starts", "sessions_opened", "sessions_refused", "admission", "errors", "error_kinds", "stages", "residency", "overload",
)  # fmt: skip


def specs() -> dict[str, SimulationSpec]:
    """By name, which is also that of the file."""
    pressed = {
        f"{policy}-{chunking}": replace(_SMALL, policy=policy, chunking=chunking)
        for policy in ("fcfs", "liveserve", "deadline")
        for chunking in ("stock", "adaptive")
    }
    rough, noisy, memory = map(find_workload, ("drops", "noisy", "multi-turn"))
    return {
        **pressed,
        "past-the-knee": replace(_SMALL, sessions=22, seconds=40.0),
        "admission": replace(_SMALL, sessions=14, seconds=40.0, admission=True),
        "rough-network": replace(
            _SMALL, workload=rough.workload, network=rough.network, sessions=6, seed=1
        ),
        "noisy-semantic": replace(
            _SMALL, workload=noisy.workload, turn_mode="semantic_vad", speculate=True, sessions=5
        ),
        "memory": replace(_SMALL, workload=memory.workload, sessions=6),
        "cpu-default": replace(_SMALL, profile="cpu-default", sessions=4, seed=2),
    }


def run(spec: SimulationSpec) -> dict[str, Any]:
    report = simulate(spec, _small(find_profile(spec.profile))).figures
    kept = {key: report[key] for key in _KEPT if key in report}
    return json.loads(json.dumps(kept))


def _small(profile: Profile) -> Profile:
    """Little room in each batch of the large stages."""
    stages = {
        stage: replace(cost, max_batch=min(cost.max_batch, _BATCH))
        if stage.value in _LARGE_STAGES
        else cost
        for stage, cost in profile.stages.items()
    }
    return replace(profile, stages=stages)


def kept(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text())


def differences(was: object, now: object, path: str = "") -> Iterator[str]:
    """Each figure that is not the same, as `path: was -> now`."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*was, *now]):
            yield from differences(was.get(key), now.get(key), f"{path}.{key}".lstrip("."))
    elif was != now:
        yield f"{path}: {was} -> {now}"


def main(arguments: list[str]) -> int:
    write = arguments == ["--write"]
    if arguments and not write:
        sys.stderr.write("usage: python -m tests.sim.golden_runs [--write]\n")
        return 2
    changed = 0
    for name, spec in specs().items():
        now, file = run(spec), FOLDER / f"{name}.json"
        found = list(differences(kept(name) if file.exists() else {}, now))
        changed += bool(found)
        for line in found:
            sys.stdout.write(f"{name}: {line}\n")
        if write:
            file.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    return 1 if changed and not write else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
