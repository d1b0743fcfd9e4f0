"""Recognition without models: audio, cuts, the filter against babble, and the engine around a stand-in recogniser."""

import numpy as np
import pytest

from engines.base import JobKey, StepRequest, Transcript, UtteranceJob
from engines.cpu.asr import AsrEngine, create
from engines.cpu.moonshine import (
    SEGMENT_MAX,
    SEGMENT_MIN,
    AsrTokenizer,
    Recognised,
    Samples,
    believable,
    cut_points,
    is_silent,
    loop_start,
    parts,
    read_pieces,
    samples_of,
)
from engines.model_store.store import ModelStore
from session_server.types.audio import INPUT_RATE
from session_server.types.errors import ModelsMissing

pytestmark = pytest.mark.unit


def noise(seconds: float, level: float = 0.1, seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    return (level * rng.standard_normal(int(seconds * INPUT_RATE))).astype(np.float32)


def pcm(audio: Samples) -> bytes:
    return (np.clip(audio, -1, 1) * 32767).astype("<i2").tobytes()


def test_samples_are_scaled_and_an_odd_byte_is_dropped() -> None:
    assert samples_of(b"\x00\x40\x00\xc0\x7f").tolist() == [0.5, -0.5]
    assert samples_of(b"").size == 0


def test_silence_is_silent_and_a_whisper_is_not() -> None:
    assert is_silent(np.zeros(16000, np.float32))
    assert is_silent(np.zeros(3, np.float32))
    assert is_silent(noise(1, 1e-4))
    whisper = np.zeros(16000, np.float32)
    whisper[8000:8640] = noise(0.04, 0.003)
    assert not is_silent(whisper)


def test_short_utterances_are_not_cut() -> None:
    assert cut_points(noise(11.9)) == []


def test_long_utterances_are_cut_where_it_is_quiet() -> None:
    audio = noise(30)
    audio[int(9.5 * INPUT_RATE) : int(9.8 * INPUT_RATE)] = 0
    first = cut_points(audio)[0] / INPUT_RATE
    assert 9.5 < first < 9.8
    pieces = parts(audio)
    np.testing.assert_array_equal(np.concatenate(pieces), audio)
    assert all(SEGMENT_MIN <= len(p) <= SEGMENT_MAX for p in pieces[:-1])
    assert 0 < len(pieces[-1]) <= SEGMENT_MAX


def test_the_cuts_of_a_growing_utterance_never_move() -> None:
    audio = noise(60)
    whole = cut_points(audio)
    for seconds in (13, 20, 27, 41, 59):
        cuts = cut_points(audio[: seconds * INPUT_RATE])
        assert cuts == whole[: len(cuts)]


@pytest.mark.parametrize(
    ("items", "start"),
    [
        ([1, 2, 3, 4], None),
        ([9, 1, 2, 1, 2, 1, 2], 3),
        ([1, 2, 1, 2], None),
        ([5, 5, 5], None),
        ([7, 5, 5, 5, 5, 5, 5], 2),
        ([], None),
    ],
)
def test_loops_are_found(items: list[int], start: int | None) -> None:
    assert loop_start(items) == start


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        ("You", -0.5),
        ("Thank you for watching.", -0.4),
        ("\u266a\u266a\u266a", -0.1),
        ("I am going home", -1.2),
        ("is the first is the first is the first is the first", -0.3),
        ("", 0.0),
        ("...", 0.0),
    ],
)
def test_what_noise_makes_up_is_dropped(text: str, confidence: float) -> None:
    assert believable(text, confidence) == ""


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        ("Yes.", -0.2),
        ("You", -0.01),
        ("No, no, no.", -0.3),
        ("\u266a Hello", -0.2),
        ("one two three", -0.8),
    ],
)
def test_speech_stays(text: str, confidence: float) -> None:
    assert believable(text, confidence) == text.replace("\u266a ", "")


def test_the_vocabulary_is_read() -> None:
    long = b"x" * 200
    data = (
        b"\x00"
        + b"\x03<s>"
        + b"\x06<0xC3>"
        + b"\x06<0xA9>"
        + b"\x04\xe2\x96\x81a"
        + bytes([128 + 72, 1])
        + long
    )
    pieces = read_pieces(data)
    assert pieces == [b"", b"", b"\xc3", b"\xa9", b" a", long]
    assert AsrTokenizer(pieces).text([4, 2, 3, 99]) == "a\u00e9"


@pytest.mark.parametrize("data", [b"\x05ab", b"\xff"])
def test_a_damaged_vocabulary_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="cut short"):
        read_pieces(data)


class StandIn:
    """Writes down what it is asked, and answers with lengths; fails on demand."""

    def __init__(self) -> None:
        self.batches: list[list[float]] = []
        self.guesses: list[tuple[int, ...]] = []
        self.fail_at: float | None = None

    def recognise(self, audios: list[Samples], guess: tuple[int, ...] = ()) -> list[Recognised]:
        seconds = [round(len(a) / INPUT_RATE, 1) for a in audios]
        if self.fail_at in seconds:
            raise RuntimeError("no such sound")
        self.batches.append(seconds)
        self.guesses.append(guess)
        return [Recognised(f"{s}s", (7, 8, 9, int(s))) for s in seconds]


@pytest.fixture
def engine(tiny_store: ModelStore) -> AsrEngine:
    made = AsrEngine(tiny_store, max_batch=3)
    made._recogniser = StandIn()  # type: ignore[assignment]
    return made


def recogniser(engine: AsrEngine) -> StandIn:
    assert isinstance(engine._recogniser, StandIn)
    return engine._recogniser


def ask(engine: AsrEngine, *audios: Samples, session: str = "s") -> list[str]:
    keys = [JobKey(session, f"w{i}") for i in range(len(audios))]
    for k, audio in zip(keys, audios, strict=True):
        engine.start(k, UtteranceJob(pcm(audio)))
    results = engine.step([StepRequest(k, 1) for k in keys])
    assert [r.key for r in results] == keys
    assert all(r.finished for r in results)
    return [r.output.text if isinstance(r.output, Transcript) else f"! {r.error}" for r in results]


def test_alike_lengths_share_a_batch_and_others_do_not(engine: AsrEngine) -> None:
    assert ask(engine, noise(1), noise(5), noise(1.2), noise(4.5)) == [
        "1.0s",
        "5.0s",
        "1.2s",
        "4.5s",
    ]
    assert recogniser(engine).batches == [[5.0, 4.5], [1.2, 1.0]]


def test_silence_costs_nothing(engine: AsrEngine) -> None:
    assert ask(engine, np.zeros(16000, np.float32), np.zeros(0, np.float32)) == ["", ""]
    assert recogniser(engine).batches == []


def test_a_growing_utterance_is_not_recognised_again_from_its_start(engine: AsrEngine) -> None:
    audio = noise(30)
    for seconds in (14, 18, 30):
        ask(engine, audio[: seconds * INPUT_RATE])
    recognised = sum(s for batch in recogniser(engine).batches for s in batch)
    assert recognised < 14 + 18 + 30 - 16


def test_the_last_text_is_the_next_guess(engine: AsrEngine) -> None:
    audio = noise(4)
    ask(engine, audio[: 2 * INPUT_RATE])
    ask(engine, audio)
    ask(engine, audio, session="other")
    ask(engine, noise(4, seed=1))
    assert recogniser(engine).guesses == [(), (7, 8), (), ()]


def test_what_one_session_said_is_not_looked_up_for_another(engine: AsrEngine) -> None:
    audio = noise(14)
    ask(engine, audio, session="a")
    before = len(recogniser(engine).batches)
    ask(engine, audio, session="b")
    assert sum(len(b) for b in recogniser(engine).batches[before:]) == 2


def test_a_failure_harms_no_other_utterance(engine: AsrEngine) -> None:
    recogniser(engine).fail_at = 5.0
    texts = ask(engine, noise(1), noise(5))
    assert texts[0] == "1.0s"
    assert "no such sound" in texts[1]


def test_of_an_endless_utterance_the_end_is_recognised(engine: AsrEngine) -> None:
    (text,) = ask(engine, np.tile(noise(10), 20))
    assert sum(float(s.removesuffix("s")) for s in text.split()) == pytest.approx(120, abs=2)


def test_released_and_unknown_jobs_give_nothing(engine: AsrEngine) -> None:
    key = JobKey("s", "w")
    engine.start(key, UtteranceJob(pcm(noise(1))))
    engine.release(key)
    engine.release(key)
    (result,) = engine.step([StepRequest(key, 1)])
    assert (result.output, result.error, result.finished) == (None, None, True)
    with pytest.raises(ValueError, match="UtteranceJob"):
        engine.start(key, b"pcm")


def test_missing_models_are_said(tmp_path_factory: pytest.TempPathFactory) -> None:
    engine = create({}, ModelStore(tmp_path_factory.mktemp("empty")))
    with pytest.raises(ModelsMissing, match=r"encoder_model\.ort.*models fetch"):
        engine.load()
