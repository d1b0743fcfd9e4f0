"""The contract with vLLM and vllm-omni: the versions this was written for, and every private name in use, are there."""

import pytest

pytest.importorskip("vllm_omni", reason="needs the environment of .ci/engines")

from engines.vllm_omni import internals

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]


def test_the_installed_versions_are_the_pinned_ones() -> None:
    assert internals.versions() == internals.PINNED


def test_every_private_name_in_use_is_there() -> None:
    assert internals.missing_names() == []


def test_no_name_of_ours_hides_one_of_theirs() -> None:
    from engines.vllm.pacing import Paced
    from engines.vllm_omni import schedulers

    meant = {"__init__", "add_request", "schedule", "get_num_unfinished_requests", "_free_request"}
    plumbing = {
        "__module__", "__doc__", "__annotations__", "__abstractmethods__", "_abc_impl", "__qualname__",
        "__dict__", "__weakref__",  # of the mixin, which has no class of vLLM's above it
    }  # fmt: skip
    for ours, theirs in (
        (Paced, schedulers.ArBase),
        (schedulers.PacedArScheduler, schedulers.ArBase),
        (schedulers.CountedGenerationScheduler, schedulers.OmniGenerationScheduler),
    ):
        own = set(vars(ours)) - plumbing
        assert own & set(dir(theirs)) <= meant
        assert all("paced" in name for name in own - meant)


def test_our_topology_is_theirs_with_our_schedulers_and_chunks() -> None:
    from vllm_omni.config.pipeline_registry import OMNI_PIPELINES
    from vllm_omni.model_executor.models.qwen3_omni.pipeline import QWEN3_OMNI_PIPELINE

    internals.register()
    internals.register()
    made = OMNI_PIPELINES[internals.PIPELINE]
    assert [stage.model_stage for stage in made.stages] == list(internals.STAGES)
    assert all(stage.scheduler_cls.startswith("engines.") for stage in made.stages)
    assert QWEN3_OMNI_PIPELINE.stages[0].scheduler_cls is None, "their own is as it was"
