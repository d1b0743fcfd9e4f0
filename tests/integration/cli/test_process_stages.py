"""`serve` with stages in processes of their own: it ends in good order, in bounded time, whatever they are doing."""

from __future__ import annotations

import signal

import psutil
import pytest

from tests.integration.cli.test_commands import HANG_S, served

pytestmark = pytest.mark.integration

IN_PROCESSES = {
    f"SESSION_SERVER__GRAPH__STAGES__{stage}__PLACEMENT": "process" for stage in ("TALKER", "CODEC")
}


def stages_of(pid: int) -> list[psutil.Process]:
    children = psutil.Process(pid).children()
    return [child for child in children if any("engine_child" in a for a in child.cmdline())]


@pytest.mark.parametrize("stopped", [True, False])
def test_sigterm_ends_a_server_whose_stage_process_stands_still(stopped: bool):
    with served(**IN_PROCESSES) as (process, _):
        stages = stages_of(process.pid)
        assert len(stages) == 2
        if stopped:
            for stage in stages:
                stage.suspend()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=HANG_S)
        assert process.returncode == 0
        assert "Traceback" not in said
        assert "Warning" not in said
        assert psutil.wait_procs(stages, timeout=HANG_S)[1] == []


def test_a_server_that_is_killed_leaves_no_stage_process():
    with served(**IN_PROCESSES) as (process, _):
        stages = stages_of(process.pid)
        process.kill()
        assert psutil.wait_procs(stages, timeout=HANG_S)[1] == []
