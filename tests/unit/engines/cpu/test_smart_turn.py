"""The turn model behind the stepped contract."""

from __future__ import annotations

import pytest

from engines.base import ClauseJob, JobKey, StepRequest, TurnJudgement, UtteranceJob
from engines.conformance.stepped import (
    CHECKS,
    SteppedKit,
    an_engine_that_was_closed_can_be_loaded_again,
)
from engines.cpu.smart_turn import TurnStage, create
from engines.model_store.store import ModelStore

pytestmark = pytest.mark.unit

KEY = JobKey("s", "w")


def test_one_step_judges_the_whole_utterance_and_forgets_it_on_release():
    heard = []

    def judge(pcm):
        heard.append(pcm)
        return 0.75

    stage = TurnStage(lambda: judge)
    stage.load()
    stage.start(KEY, UtteranceJob(b"\x01\x00"))
    (result,) = stage.step([StepRequest(KEY, 1)])
    assert result.output == TurnJudgement(0.75)
    assert result.finished
    assert heard[-1] == b"\x01\x00"
    stage.release(KEY)
    stage.release(KEY)
    (result,) = stage.step([StepRequest(KEY, 1)])
    assert (result.output, result.units, result.error) == (None, 0, None)
    stage.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract_of_stepped_engines(check):
    kit = SteppedKit(
        lambda: TurnStage(lambda: lambda pcm: len(pcm) / 100),
        lambda n: UtteranceJob(bytes(2 * n + 2)),
        held=lambda engine: engine.jobs_held,
    )
    stage = kit.create()
    stage.load()
    check(kit, stage)
    stage.close()
    an_engine_that_was_closed_can_be_loaded_again(kit)


def test_only_utterances_are_judged():
    stage = TurnStage(lambda: lambda pcm: 0.0)
    with pytest.raises(ValueError, match="ClauseJob"):
        stage.start(KEY, ClauseJob("hi", "heart"))


def test_an_option_it_does_not_have_is_named(tmp_path):
    with pytest.raises(ValueError, match="threshold"):
        create({"threshold": 0.5}, ModelStore(tmp_path))
