"""The turn model behind the stepped contract."""

from __future__ import annotations

import pytest

from engines.base import ClauseJob, JobKey, StepRequest, TurnJudgement, UtteranceJob
from engines.model_store import ModelStore
from session_server.runtime.turn_stage import TurnStage, create

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
    assert result.error
    stage.close()


def test_only_utterances_are_judged():
    stage = TurnStage(lambda: lambda pcm: 0.0)
    with pytest.raises(ValueError, match="ClauseJob"):
        stage.start(KEY, ClauseJob("hi", "heart"))


def test_an_option_it_does_not_have_is_named(tmp_path):
    with pytest.raises(ValueError, match="threshold"):
        create({"threshold": 0.5}, ModelStore(tmp_path))
