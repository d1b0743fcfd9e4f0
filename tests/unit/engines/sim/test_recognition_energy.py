"""The simulated recogniser and turn model read energy, nothing else."""

import numpy as np
import pytest

from engines.base import JobKey, StepRequest, Transcript, TurnJudgement, UtteranceJob
from engines.sim.recognition import AsrOptions, SimAsr, SimTurn, TurnOptions

pytestmark = pytest.mark.unit

KEY = JobKey("s", "w")


def tone(seconds: float) -> bytes:
    return (8000 * np.sin(np.arange(int(16000 * seconds)) * 0.3)).astype("<i2").tobytes()


def heard(pcm: bytes, partial: bool = False, **options: str) -> str:
    asr = SimAsr(AsrOptions(**options))  # type: ignore[arg-type]
    asr.start(KEY, UtteranceJob(pcm, partial))
    (result,) = asr.step([StepRequest(KEY, 1)])
    assert isinstance(result.output, Transcript)
    return result.output.text


def judged(pcm: bytes) -> float:
    turn = SimTurn(TurnOptions())
    turn.start(KEY, UtteranceJob(pcm))
    (result,) = turn.step([StepRequest(KEY, 1)])
    assert isinstance(result.output, TurnJudgement)
    return result.output.probability


def test_loud_audio_gives_words_in_proportion() -> None:
    assert heard(tone(0.4)) == "one"
    assert heard(tone(1.5)) == "one two three four"


@pytest.mark.parametrize("pcm", [b"", b"\x00", bytes(32000)])
def test_silence_gives_no_words(pcm: bytes) -> None:
    assert heard(pcm) == ""
    assert heard(pcm, text="What is this?") == ""


def test_a_given_text_is_the_answer_and_partials_are_its_beginning() -> None:
    assert heard(tone(2), text="What is the capital of France?") == "What is the capital of France?"
    assert heard(tone(0.8), True, text="What is the capital of France?") == "What is"


def test_the_same_audio_gives_the_same_choice() -> None:
    texts = "Hello.|Goodbye.|Maybe."
    answers = [heard(tone(1 + i / 10), texts=texts) for i in range(20)]
    assert answers == [heard(tone(1 + i / 10), texts=texts) for i in range(20)]
    assert set(answers) == set(texts.split("|"))


def test_a_turn_is_finished_when_the_audio_ends_quietly() -> None:
    assert judged(tone(1) + bytes(6400)) > 0.9
    assert judged(tone(1)) < 0.1
