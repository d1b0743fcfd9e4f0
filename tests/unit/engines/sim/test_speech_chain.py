"""All simulated stages after each other: an answer's audio is whole, and its words have their times."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from engines.base import (
    ClauseJob,
    JobKey,
    Pcm,
    Spectra,
    Speech,
    SpeechJob,
    SteppedEngine,
    StepRequest,
    ThinkJob,
    TokenOutput,
)
from engines.clauses import ClauseSplitter
from engines.model_store.store import ModelStore
from engines.registry import factory
from engines.sim.wave import verify
from session_server.types.prompt import PromptMessage

pytestmark = pytest.mark.unit


def load(name: str) -> SteppedEngine:
    engine = factory(name)({}, ModelStore(Path("none")))
    engine.load()
    return engine


def drain(engine: SteppedEngine, key: JobKey, size: int) -> list[object]:
    out: list[object] = []
    finished = False
    while not finished:
        (result,) = engine.step([StepRequest(key, size)])
        assert result.error is None
        out += [result.output] if result.output is not None else []
        finished = result.finished
    engine.release(key)
    return out


@given(st.integers(1, 40), st.integers(1, 40))
def test_an_answers_audio_is_whole_whatever_the_chunks(codec_size: int, vocoder_size: int) -> None:
    thinker, talker, codec, vocoder = map(
        load, ("sim.thinker", "sim.talker", "sim.codec", "sim.vocoder")
    )
    whole = JobKey("sess_1", "resp_1")
    thinker.start(
        whole, ThinkJob("Be brief.", (PromptMessage("user", "Hello, how are you today?"),))
    )
    splitter = ClauseSplitter()
    tokens = [o.text or "" for o in drain(thinker, whole, 64) if isinstance(o, TokenOutput)]
    clauses = [c for token in tokens for c in splitter.push(token)] + splitter.flush()
    pcm, samples = b"", 0
    for part, clause in enumerate(clauses):
        key = JobKey("sess_1", "resp_1", part)
        talker.start(key, ClauseJob(clause.text, "heart"))
        (speech,) = drain(talker, key, 1)
        assert isinstance(speech, Speech)
        assert speech.words[-1].end_sample == speech.samples
        assert [clause.text[w.char_start : w.char_end] for w in speech.words] == clause.text.split()
        samples += speech.samples
        codec.start(key, SpeechJob("heart"))
        codec.feed(key, speech.frames, True)
        spectra = drain(codec, key, codec_size)
        vocoder.start(key, SpeechJob("heart"))
        for i, item in enumerate(spectra):
            assert isinstance(item, Spectra)
            vocoder.feed(key, item.payload, i + 1 == len(spectra))
        pcm += b"".join(o.pcm for o in drain(vocoder, key, vocoder_size) if isinstance(o, Pcm))
    report = verify(pcm, "resp_1")
    assert report.complete
    assert report.clauses == len(clauses) > 1
    assert report.samples == samples
