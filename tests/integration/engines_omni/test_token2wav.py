"""Chunks of the denoiser and BigVGAN against the whole utterance; jobs that join and leave between denoising steps."""

from unittest.mock import patch

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from engines.base import JobKey, Pcm, SpeechJob, StepRequest  # noqa: E402
from engines.model_store.store import ModelStore  # noqa: E402
from engines.omni.stage_payloads import CodecFrames  # noqa: E402
from engines.omni.token2wav import Token2WavEngine, create  # noqa: E402
from engines.omni.weights import read_voices  # noqa: E402
from tests.integration.engines_omni.kinds import QWEN2_5  # noqa: E402

pytestmark = pytest.mark.integration
BLOCK, UNIT, STEPS = 12, 480, 9
CODES = 4 * BLOCK + 5
ALL = 99


@pytest.fixture(scope="module")
def folder(folders):
    return folders(QWEN2_5)


@pytest.fixture(scope="module")
def make(folder, tmp_path_factory):
    """Engines with other contexts, on one model."""
    store, loaded = ModelStore(tmp_path_factory.mktemp("store")), []

    def engine(left: int, right: int, waves: int = 40) -> Token2WavEngine:
        made = create(
            {"weights": str(folder), "threads": 1, "slots": 4, "left_blocks": left, "right_blocks": right, "wave_frames": waves},
            store,
        )  # fmt: skip
        if not loaded:
            made.load()
            loaded.append(made._loaded)
        made._loaded = loaded[0]
        return made

    return engine


def whole(engine: Token2WavEngine, folder, codes, seed: int = 0) -> torch.Tensor:
    """What the class gives for all codes at once, from the noise that our jobs draw."""
    chance = torch.Generator().manual_seed(seed)
    noise = torch.cat([torch.randn((2, 80), generator=chance) for _ in codes])[None]
    voice, loaded = read_voices(folder)["ethan"], engine._loaded
    with patch.object(torch, "randn", lambda *_, **__: noise.clone()):
        mel = loaded.denoiser._model.sample(
            voice["cond"], voice["ref_mel"], codes.reshape(1, -1), num_steps=STEPS + 1
        )
    with torch.inference_mode():
        return loaded._bigvgan(mel)


def pcm_of(wave: torch.Tensor) -> np.ndarray:
    return (wave * 32767).round().numpy()


def begin(engine: Token2WavEngine, key: JobKey, codes, seed: int = 0) -> None:
    engine.start(key, SpeechJob("Ethan", seed))
    half = len(codes) // 2
    engine.feed(key, CodecFrames(codes[:half]), False)
    engine.feed(key, CodecFrames(codes[half:]), True)


def run(engine: Token2WavEngine, key: JobKey, units: int) -> tuple[torch.Tensor, int]:
    """All samples of a job that has its codes, and how many steps they took."""
    waves, steps, given = [], 0, 0
    with patch("engines.omni.token2wav.s16le", lambda wave: waves.append(wave.clone()) or b"\0\0"):
        while True:
            (result,) = engine.step([StepRequest(key, units)])
            steps += 1
            assert result.error is None
            assert result.units <= units
            given += result.units
            if result.finished:
                break
    engine.release(key)
    wave = torch.cat(waves)
    assert len(wave) == given * UNIT
    return wave, steps


def test_chunks_are_the_whole_where_all_that_bears_on_them_is_there(make, folder):
    codes = QWEN2_5.random_codes(CODES, 1)
    expected = whole(make(0, ALL), folder, codes)
    assert len(expected) == CODES * UNIT
    for n, (left, right, units) in enumerate([(0, ALL, BLOCK), (0, 3, 2 * BLOCK), (0, 3, 5)]):
        engine = make(left, right)
        begin(engine, JobKey("s", f"r{n}"), codes)
        wave, steps = run(engine, JobKey("s", f"r{n}"), units)
        assert len(wave) == len(expected)
        assert float((wave - expected).abs().max()) <= 1e-5
        assert steps >= -(-CODES // max(BLOCK, units)) * STEPS


def test_a_bounded_context_loses_no_sample_and_keeps_no_more_codes(make, folder):
    """The figures of docs/omni.md, with `-s`."""
    codes = QWEN2_5.random_codes(CODES, 2)
    expected = whole(make(0, ALL), folder, codes)
    errors = {}
    for left, right, waves in [(2, 0, 40), (2, 1, 40), (2, 2, 40), (1, 1, 40), (2, 1, 10)]:
        engine = make(left, right, waves)
        key = JobKey("s", f"l{left}r{right}w{waves}")
        begin(engine, key, codes)
        job = engine._jobs[key]
        wave, _ = run(engine, key, BLOCK)
        assert len(wave) == len(expected)
        assert len(job.codes) <= (left + 1 + right) * BLOCK
        assert len(job.noise) == 2 * len(job.codes)
        assert len(job.mel) <= waves
        errors[left, right, waves] = float((wave - expected).abs().max())
    print("max |difference| by (left blocks, right blocks, mel frames):", errors)
    print("rms", float(expected.pow(2).mean().sqrt()))
    assert errors[2, 0, 40] > errors[2, 1, 40] > errors[2, 2, 40]
    assert errors[2, 1, 40] < 1e-3


def test_jobs_that_join_between_denoising_steps_are_each_job_alone(make, folder):
    engine = make(2, 1)
    jobs = {JobKey("s", f"r{n}"): QWEN2_5.random_codes(5 + 11 * n, n) for n in range(4)}
    alone = {}
    for n, (key, codes) in enumerate(jobs.items()):
        begin(engine, key, codes, seed=n)
        alone[key] = run(engine, key, BLOCK)[0]
    got, live, waiting, turn = dict.fromkeys(jobs, b""), [], list(jobs), 0
    while live or waiting:
        if waiting and turn % 4 == 0:  # in the middle of the others' chunks
            key = waiting.pop(0)
            begin(engine, key, jobs[key], seed=3 - len(waiting))
            live.append(key)
        for result in engine.step([StepRequest(key, BLOCK) for key in live]):
            if isinstance(result.output, Pcm):
                got[result.key] += result.output.pcm
            if result.finished:
                live.remove(result.key)
                engine.release(result.key)
        turn += 1
    for key, wave in alone.items():
        samples = np.frombuffer(got[key], "<i2").astype(np.float64)
        assert len(samples) == len(wave)
        assert np.abs(samples - pcm_of(wave)).max() <= 1.0
    assert engine.jobs_held == 0


def test_cancelled_at_any_denoising_step_a_job_is_gone_and_its_neighbour_is_untouched(make):
    engine = make(2, 1)
    codes = QWEN2_5.random_codes(2 * BLOCK, 5)
    by = JobKey("s", "alone")
    begin(engine, by, codes)
    alone = pcm_of(run(engine, by, BLOCK)[0])
    for point in range(STEPS + 1):
        victim, other = JobKey("v", f"v{point}"), JobKey("o", f"o{point}")
        begin(engine, victim, QWEN2_5.random_codes(2 * BLOCK, point))
        for _ in range(point):
            engine.step([StepRequest(victim, BLOCK)])
        if point % 6:
            engine.release(victim)
            assert engine.jobs_held == 0
            assert engine.step([StepRequest(victim, BLOCK)])[0].finished
            continue
        begin(engine, other, codes)
        pcm = b""
        for step in range(2 * STEPS):
            if step == 4:
                engine.release(victim)
            batch = [StepRequest(other, BLOCK), *([StepRequest(victim, BLOCK)] if step < 4 else [])]
            output = engine.step(batch)[0].output
            pcm += output.pcm if isinstance(output, Pcm) else b""
        engine.release(other)
        assert engine.jobs_held == 0
        samples = np.frombuffer(pcm, "<i2").astype(np.float64)
        assert np.abs(samples - alone).max() <= 1.0


def test_a_chunk_waits_for_the_codes_behind_it_and_not_for_more(make):
    engine, key = make(2, 1), JobKey("s", "waits")
    shape = engine.capabilities.chunk
    assert (shape.units, shape.ahead, shape.steps) == (BLOCK, BLOCK, STEPS)
    engine.start(key, SpeechJob("chelsie"))
    engine.feed(key, CodecFrames(QWEN2_5.random_codes(2 * BLOCK - 1, 1)), False)
    for _ in range(2):
        result = engine.step([StepRequest(key, BLOCK)])[0]
        assert (result.output, result.units, result.finished) == (None, 0, False)
    engine.feed(key, CodecFrames(QWEN2_5.random_codes(1, 2)), False)
    results = [engine.step([StepRequest(key, BLOCK)])[0] for _ in range(STEPS)]
    assert [result.units for result in results] == [0] * (STEPS - 1) + [BLOCK]
    engine.release(key)


def test_codes_that_the_model_does_not_have_fail_their_own_answer(make):
    engine, bad, good = make(2, 1), JobKey("s", "bad"), JobKey("s", "good")
    begin(engine, good, QWEN2_5.random_codes(BLOCK, 1))
    begin(engine, bad, torch.full((BLOCK, 1), 8292))
    results = engine.step([StepRequest(bad, BLOCK), StepRequest(good, BLOCK)])
    assert "codes must be in 0..8193" in results[0].error
    assert results[1].error is None
    engine.release(bad)
    engine.release(good)
    with pytest.raises(ValueError, match="no voice 'nobody'; it has chelsie, ethan"):
        engine.start(bad, SpeechJob("nobody"))
    with pytest.raises(ValueError, match=r"dtype: must be one of float32, not 'bfloat16'"):
        create({"weights": "x", "dtype": "bfloat16"}, ModelStore())
