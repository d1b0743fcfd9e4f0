"""The contract with vLLM: the version this was written for, and every private name in use, is there."""

import pytest

pytest.importorskip("vllm", reason="needs the environment of .ci/engines")

from engines.vllm import internals

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]


def test_the_installed_version_is_the_pinned_one() -> None:
    assert internals.version() in internals.PINNED


def test_every_private_name_in_use_is_there() -> None:
    assert internals.missing_names() == []


def test_a_name_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        internals.ATTRIBUTES, "vllm.v1.request:Request", ("num_output_tokens", "no_such")
    )
    monkeypatch.setitem(internals.ASSIGNED, "vllm.v1.request", ("self.no_such = ",))
    assert internals.missing_names() == [
        "vllm.v1.request:Request.no_such",
        "vllm.v1.request: self.no_such",
    ]


def test_no_name_of_ours_hides_one_of_vllms() -> None:
    from vllm.v1.core.sched import scheduler

    from engines.vllm.pacing import Paced
    from engines.vllm.scheduler import PacedScheduler

    meant = {"__init__", "add_request", "schedule", "get_num_unfinished_requests", "_free_request"}
    plumbing = {
        "__module__",
        "__doc__",
        "__annotations__",
        "__abstractmethods__",
        "_abc_impl",
        "__qualname__",
        "__dict__",  # of the mixin, which has no class of vLLM's above it
        "__weakref__",
    }
    ours = (set(vars(Paced)) | set(vars(PacedScheduler))) - plumbing
    assert ours & set(dir(scheduler.Scheduler)) == meant
    assert all("paced" in name for name in ours - meant)
