"""The talker: silence trimmed, words timed, speed honoured, nothing said for nothing."""

import numpy as np
import pytest

from engines.base import ClauseJob, JobKey, Speech, StepRequest
from engines.cpu.codec import AcousticFeatures
from engines.cpu.talker import Talker, create, voiced_range
from engines.model_store.store import ModelStore
from session_server.types.errors import ModelsMissing

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def talker(speech_store: ModelStore) -> Talker:
    engine = create({}, speech_store)
    engine.load()
    return engine


def speak(talker: Talker, text: str, speed: float = 1.0) -> Speech:
    return talker.speak(ClauseJob(text, "heart", speed))


def test_samples_are_units_times_the_hop(talker: Talker) -> None:
    speech = speak(talker, "Hello there, how are you?")
    assert isinstance(speech.frames, AcousticFeatures)
    assert speech.frames.features.shape == (130, speech.units)
    assert speech.samples == speech.units * 300
    assert 24_000 < speech.samples < 72_000


def test_the_models_silence_is_trimmed_to_a_short_pause(talker: Talker) -> None:
    """Untrimmed there are 300 ms before and 500 ms after."""
    speech = speak(talker, "Hello there, how are you?")
    assert isinstance(speech.frames, AcousticFeatures)
    loud = np.nonzero(speech.frames.features[129] > -0.6)[0]
    assert loud[0] <= 4
    assert speech.units - loud[-1] <= 8


def test_the_pause_inside_a_sentence_is_shorter_than_after_one(talker: Talker) -> None:
    def tail(text: str) -> int:
        frames = speak(talker, text).frames
        assert isinstance(frames, AcousticFeatures)
        return int(frames.units - np.nonzero(frames.features[129] > -0.6)[0][-1])

    assert tail("The weather is mild today ") < tail("The weather is mild today. ")


def test_every_word_has_its_time_in_order(talker: Talker) -> None:
    text = "At 10:30, **Bob** paid $5 for it. Then he left!"
    speech = speak(talker, text)
    assert [text[w.char_start : w.char_end] for w in speech.words] == text.split()
    at = 0
    for word in speech.words:
        assert at <= word.start_sample < word.end_sample <= speech.samples
        at = word.end_sample
    assert not speech.estimated


def test_word_times_follow_the_speed(talker: Talker) -> None:
    slow, fast = (
        speak(talker, "One two three four five.", 0.5),
        speak(talker, "One two three four five.", 1.5),
    )
    assert 2.0 < slow.samples / fast.samples < 4.0
    assert 2.0 < slow.words[-1].start_sample / fast.words[-1].start_sample < 4.0


@pytest.mark.parametrize("text", ["", "  \n", "😀", "…", "你好", "***"])
def test_nothing_to_say_gives_no_units(talker: Talker, text: str) -> None:
    assert speak(talker, text) == Speech(None, 0, 0)


def test_a_voice_that_is_not_there_is_refused(talker: Talker) -> None:
    with pytest.raises(ValueError, match="no voice 'emma'"):
        talker.start(JobKey("s", "w"), ClauseJob("Hi.", "emma"))
    assert talker.jobs_held == 0


def test_a_clause_that_breaks_the_model_fails_alone(
    talker: Talker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = talker._run
    good, bad = JobKey("s", "good"), JobKey("s", "bad")

    def fragile(sentence: object, speed: float) -> object:
        if speed == 2.0:
            raise ValueError("not finite")
        return run(sentence, speed)  # type: ignore[arg-type]

    monkeypatch.setattr(talker, "_run", fragile)
    talker.start(good, ClauseJob("Fine.", "heart"))
    talker.start(bad, ClauseJob("Broken.", "heart", 2.0))
    results = talker.step([StepRequest(bad, 1), StepRequest(good, 1)])
    talker.release(good)
    talker.release(bad)
    assert results[0].error == "ValueError: not finite"
    assert results[1].error is None
    assert results[1].units > 0


def test_all_quiet_frames_are_kept_whole() -> None:
    assert voiced_range(np.full((130, 40), -1.0, np.float32)) == (0, 40)


def test_missing_models_are_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ModelsMissing, match="hibari_talker"):
        create({}, ModelStore(tmp_path)).load()
