"""The contract with vLLM: the version this was written for, and every private name in use, is there."""

import pytest

pytest.importorskip("vllm", reason="needs the environment of .ci/engines")

from engines.vllm import internals as names

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]


def test_the_installed_version_is_the_pinned_one() -> None:
    assert names.version() in names.PINNED


def test_every_private_name_in_use_is_there() -> None:
    assert names.missing_names() == []


def test_a_name_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        names.ATTRIBUTES, "vllm.v1.request:Request", ("num_output_tokens", "no_such")
    )
    monkeypatch.setitem(names.ASSIGNED, "vllm.v1.request", ("self.no_such = ",))
    assert names.missing_names() == [
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
