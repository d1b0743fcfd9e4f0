"""What is spoken in chunks is understood: the talker's speech, recognised, against its own text."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from engines.base import (
    ClauseJob,
    JobKey,
    Pcm,
    Spectra,
    Speech,
    SpeechJob,
    SteppedEngine,
    StepRequest,
    Transcript,
    UtteranceJob,
)
from engines.clauses import ClauseSplitter
from engines.model_store.store import ModelStore
from engines.registry import factory
from session_server.types.errors import ModelsMissing

pytestmark = [pytest.mark.unit, pytest.mark.models]

SENTENCES = [
    "The weather is mild today with a light breeze from the west.",
    "Please turn off the lights before you leave the kitchen.",
    "She bought three apples and a loaf of bread at the market.",
    "My brother plays the guitar every evening after dinner.",
    "The train to London leaves from platform nine at noon.",
    "Can you tell me how far the moon is from the earth?",
    "I would like a cup of tea with milk and no sugar.",
    "The children ran across the field to catch the ball.",
    "We should meet again next week to discuss the plan.",
    "Water boils at one hundred degrees at sea level.",
    "He opened the window because the room was too warm.",
    "What is the capital city of France?",
    "The library closes early on Sunday afternoon.",
    "Her garden is full of roses and yellow tulips.",
    "A gentle rain fell on the quiet village last night.",
    "Remember to charge your phone before the long trip.",
    "The doctor said that walking is good for the heart.",
    "They watched a funny movie and ate popcorn together.",
    "How many days are there in the month of February?",
    "The old bridge was built more than two hundred years ago.",
]
NUMBERS = {"9": "nine", "100": "one hundred", "200": "two hundred", "3": "three"}


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, SteppedEngine]]:
    root = os.environ.get("SESSION_SERVER_MODELS")
    if not root:
        pytest.skip("SESSION_SERVER_MODELS names no folder of fetched models")
    names = ("cpu.hibari_talker", "cpu.hibari_codec", "cpu.hibari_vocoder", "cpu.moonshine")
    loaded = {name: factory(name)({}, ModelStore(Path(root))) for name in names}
    try:
        for engine in loaded.values():
            engine.load()
    except ModelsMissing as error:
        pytest.skip(str(error))
    yield loaded
    for engine in loaded.values():
        engine.close()


def run(
    engine: SteppedEngine, job: object, payload: object, sizes: Callable[[int], int]
) -> list[object]:
    key, out, finished = JobKey("s", "w"), [], False
    engine.start(key, job)
    engine.feed(key, payload, True)
    while not finished:
        (result,) = engine.step([StepRequest(key, sizes(len(out)))])
        assert result.error is None
        out.append(result.output)
        finished = result.finished
    engine.release(key)
    return out


def speak(engines: dict[str, SteppedEngine], text: str) -> tuple[bytes, Speech]:
    """One clause through all three stages, in chunks of 8 to 16 frames."""
    (speech,) = run(engines["cpu.hibari_talker"], ClauseJob(text, "heart"), None, lambda i: 1)
    assert isinstance(speech, Speech)
    spectra = run(
        engines["cpu.hibari_codec"], SpeechJob("heart"), speech.frames, lambda i: 8 + i % 9
    )
    vocoder, key = engines["cpu.hibari_vocoder"], JobKey("s", "w")
    vocoder.start(key, SpeechJob("heart"))
    pcm = b""
    for i, item in enumerate(spectra):
        assert isinstance(item, Spectra)
        vocoder.feed(key, item.payload, i + 1 == len(spectra))
        (result,) = vocoder.step([StepRequest(key, item.units)])
        pcm += result.output.pcm if isinstance(result.output, Pcm) else b""
    vocoder.release(key)
    assert len(pcm) == 2 * speech.samples
    return pcm, speech


def recognise(engines: dict[str, SteppedEngine], pcm: bytes) -> str:
    import soxr

    audio = soxr.resample(np.frombuffer(pcm, "<i2"), 24_000, 16_000)
    quiet = np.zeros(1600, np.int16)
    utterance = np.concatenate([quiet, audio, quiet]).astype("<i2").tobytes()
    (output,) = run(engines["cpu.moonshine"], UtteranceJob(utterance), None, lambda i: 1)
    assert isinstance(output, Transcript)
    return output.text


def words(text: str) -> list[str]:
    text = re.sub(r"[^a-z0-9 ]", " ", text.lower().replace("-", " ").replace("'", ""))
    return " ".join(NUMBERS.get(w, w) for w in text.split()).split()


def word_errors(reference: str, hypothesis: str) -> tuple[int, int]:
    """(edit distance in words, words of the reference)."""
    ref, hyp = words(reference), words(hypothesis)
    row = list(range(len(hyp) + 1))
    for i, r in enumerate(ref, 1):
        diagonal, row[0] = row[0], i
        for j, h in enumerate(hyp, 1):
            best = min(row[j] + 1, row[j - 1] + 1, diagonal + (r != h))
            diagonal, row[j] = row[j], best
    return row[-1], len(ref)


def error_rate(pairs: list[tuple[str, str]]) -> float:
    errors = [word_errors(*pair) for pair in pairs]
    rate = sum(e for e, _ in errors) / sum(n for _, n in errors)
    print(f"WER {rate:.2%}", [pair for pair, (e, _) in zip(pairs, errors, strict=True) if e])
    return rate


@pytest.mark.timeout(120)
def test_sentences_are_understood(engines: dict[str, SteppedEngine]) -> None:
    pairs = [(s, recognise(engines, speak(engines, s)[0])) for s in SENTENCES]
    assert error_rate(pairs) <= 0.05


@pytest.mark.timeout(120)
def test_answers_cut_into_clauses_are_understood(engines: dict[str, SteppedEngine]) -> None:
    """As the server speaks: the first clause is cut early, without regard to grammar."""
    pairs = []
    for first, second in zip(SENTENCES[::2], SENTENCES[1::2], strict=True):
        answer = f"{first} {second}"
        splitter = ClauseSplitter()
        clauses = [*splitter.push(answer), *splitter.flush()]
        assert len(clauses) > 1
        pairs.append(
            (answer, recognise(engines, b"".join(speak(engines, c.text)[0] for c in clauses)))
        )
    assert error_rate(pairs) <= 0.05


@pytest.mark.timeout(120)
def test_what_was_heard_up_to_a_words_end_is_what_the_word_times_say(
    engines: dict[str, SteppedEngine],
) -> None:
    """Audio stopped after the k-th word: the recogniser hears k words, give or take a little."""
    pairs = []
    for sentence in SENTENCES[:10]:
        pcm, speech = speak(engines, sentence)
        k = len(speech.words) * 2 // 3
        word = speech.words[k - 1]
        pairs.append((sentence[: word.char_end], recognise(engines, pcm[: 2 * word.end_sample])))
    assert error_rate(pairs) <= 0.10
