"""Chunks of Code2Wav are the whole wave: no sample lost or repeated, whatever the chunks and the neighbours."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from engines.base import JobKey, Pcm, SpeechJob, StepRequest  # noqa: E402
from engines.model_store.store import ModelStore  # noqa: E402
from engines.omni.code2wav import Code2WavEngine, CodeStream, WaveMaker, create  # noqa: E402
from engines.omni.stage_payloads import CodecFrames  # noqa: E402
from tests.integration.engines_omni.kinds import QWEN3  # noqa: E402

pytestmark = pytest.mark.integration
FRAMES = 60


@pytest.fixture(scope="module")
def engine(folders, tmp_path_factory) -> Code2WavEngine:
    store = ModelStore(tmp_path_factory.mktemp("store"))
    options = {"weights": str(folders(QWEN3)), "dtype": "float32", "threads": 1}
    made = create({**options, "left_frames": 0}, store)
    made.load()
    return made


def codes(seed: int, frames: int = FRAMES):
    return QWEN3.random_codes(frames, seed)


def whole(engine: Code2WavEngine, wanted):
    return engine._decode(wanted[None])[0]


def chunked(engine: Code2WavEngine, left: int, wanted, sizes):
    maker = WaveMaker(engine._decode, 1920, left)
    maker.measure(16)
    stream, parts = CodeStream(wanted), []
    for size in sizes:
        parts += maker.next_waves([(stream, size)])
    assert stream.waiting == 0
    return torch.cat(parts), stream


def test_chunks_with_full_left_context_are_the_whole_wave(engine):
    wanted = codes(1)
    expected = whole(engine, wanted)
    assert len(expected) == FRAMES * 1920 - 555
    for sizes in ([1] * FRAMES, [5] * (FRAMES // 5), [3, 7, 1, 20, 2, 27]):
        wave, _ = chunked(engine, 0, wanted, sizes)
        assert len(wave) == len(expected)
        assert float((wave - expected).abs().max()) <= 1e-5


def test_a_bounded_context_loses_no_sample_and_keeps_no_more_codes(engine):
    wanted = codes(2)
    expected = whole(engine, wanted)
    errors = {}
    for left in (10, 25, 50):
        wave, stream = chunked(engine, left, wanted, [5] * (FRAMES // 5))
        assert len(wave) == len(expected)
        assert len(stream.known) <= left
        errors[left] = float((wave - expected).abs().max())
    # two layers that see 24 frames each: with 50 frames next to nothing is missing
    assert errors[50] < 1e-3 < errors[10]
    print("max |difference| by left context:", errors, "rms", float(expected.pow(2).mean().sqrt()))


def test_neighbours_of_other_lengths_change_nothing(engine):
    """Ragged batches through the engine's own steps: to the last bit but one of s16le as decoded alone."""
    jobs = {JobKey("s", f"r{i}"): codes(i, 8 + 5 * i) for i in range(4)}
    for key, wanted in jobs.items():
        engine.start(key, SpeechJob("ethan"))
        engine.feed(key, CodecFrames(wanted[:3]), last=False)
        engine.feed(key, CodecFrames(wanted[3:]), last=True)
    got, left = dict.fromkeys(jobs, b""), list(jobs)
    for turn in range(40):
        results = engine.step([StepRequest(key, 1 + (turn + i) % 4) for i, key in enumerate(left)])
        for result in results:
            assert isinstance(result.output, Pcm)
            got[result.key] += result.output.pcm
        left = [result.key for result in results if not result.finished]
        if not left:
            break
    for key, wanted in jobs.items():
        expected = whole(engine, wanted).numpy() * 32767
        samples = np.frombuffer(got[key], "<i2").astype(np.float64)
        assert len(samples) == len(expected)
        assert np.abs(samples - expected).max() <= 1.0
        engine.release(key)
    assert engine.jobs_held == 0


def test_what_is_unknown_or_released_harms_nobody(engine):
    key = JobKey("s", "gone")
    engine.feed(key, CodecFrames(codes(3)), last=False)
    engine.release(key)
    assert engine.step([StepRequest(key, 5)])[0].finished
    engine.start(key, SpeechJob("ethan"))
    assert engine.step([StepRequest(key, 5)])[0].output is None
    engine.feed(key, None, last=True)
    assert engine.step([StepRequest(key, 5)])[0].finished
    engine.release(key)
    engine.release(key)
    assert engine.jobs_held == 0
