"""Codec and vocoder in chunks against the whole utterance, and what comes out as PCM."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engines.base import ClauseJob, JobKey, Pcm, Spectra, SpeechJob, StepRequest
from engines.cpu import codec as codecs, vocoder as vocoders
from engines.cpu.codec import AcousticFeatures, Array, Codec, pulse_train
from engines.cpu.talker import Talker
from engines.cpu.vocoder import OverlapAdd, Vocoder, noise_generator, to_pcm
from engines.model_store.store import ModelStore

pytestmark = pytest.mark.unit

TEXT = "The weather is mild today. It may rain in the evening."


@pytest.fixture(scope="module")
def frames(speech_store: ModelStore) -> AcousticFeatures:
    talker = Talker(speech_store)
    talker.load()
    spoken = talker.speak(ClauseJob(TEXT, "heart")).frames
    assert isinstance(spoken, AcousticFeatures)
    return spoken


@pytest.fixture(scope="module")
def float_codec(speech_store: ModelStore) -> Codec:
    engine = codecs.create({"precision": "float"}, speech_store)
    engine.load()
    return engine


@pytest.fixture(scope="module")
def int8_codec(speech_store: ModelStore) -> Codec:
    engine = codecs.create({}, speech_store)
    engine.load()
    return engine


def wave(codec: Codec, frames: AcousticFeatures, chunks: list[int]) -> Array:
    """float32 samples; `chunks` are the sizes, the last one repeated."""
    pulses, vocoder = pulse_train(frames.f0), OverlapAdd(noise_generator(0, 7))
    parts, at, i = [], 0, 0
    while at < frames.units:
        end = min(frames.units, at + chunks[min(i, len(chunks) - 1)])
        parts.append(vocoder.push(codec.render(frames, pulses, at, end)))
        at, i = end, i + 1
    return np.concatenate([*parts, vocoder.flush()])


@pytest.fixture(scope="module")
def whole(float_codec: Codec, frames: AcousticFeatures) -> Array:
    return wave(float_codec, frames, [frames.units])


def test_the_whole_is_what_the_models_own_synthesis_gives(
    float_codec: Codec, frames: AcousticFeatures, whole: Array
) -> None:
    from hibari import dsp

    noise = noise_generator(0, 7).standard_normal((frames.units, 1202), dtype=np.float32)

    class SameNoise:
        def standard_normal(self, shape: tuple[int, int], dtype: type) -> Array:
            return np.ascontiguousarray(noise.view(np.complex64).T).view(np.float32)

    rendered = float_codec.render(frames, pulse_train(frames.f0), 0, frames.units)
    parts = (
        rendered.harmonic,
        rendered.harmonic_phase,
        rendered.noise,
        rendered.free,
        rendered.free_phase,
    )
    own = dsp.synth(*(p.copy() for p in parts), frames.f0, SameNoise())
    assert np.abs(own - whole).max() < 1e-5


@pytest.mark.parametrize("chunks", [[1], [2], [5], [8], [16], [3, 7, 1, 40, 11]])
def test_chunks_equal_the_whole_with_the_float_codec(
    float_codec: Codec, frames: AcousticFeatures, whole: Array, chunks: list[int]
) -> None:
    chunked = wave(float_codec, frames, chunks)
    assert len(chunked) == frames.units * 300
    assert np.abs(whole).max() > 0.1
    assert np.abs(chunked - whole).max() < 1e-5


def test_the_8_bit_codec_stays_near_the_whole(
    int8_codec: Codec, frames: AcousticFeatures, whole: Array
) -> None:
    """8-bit products take their scale from each call, so only nearness can be promised."""
    for size in (8, 16, frames.units):
        difference = wave(int8_codec, frames, [size]) - whole
        assert np.abs(difference).max() < 0.1
        snr = 10 * np.log10((whole**2).sum() / (difference**2).sum())
        assert snr > 20


def steps(engine: Codec | Vocoder, key: JobKey, sizes: list[int]) -> list[object]:
    out: list[object] = []
    for size in [*sizes, 10_000]:
        (result,) = engine.step([StepRequest(key, size)])
        assert result.error is None
        assert result.units <= size
        if result.output is not None:
            out.append(result.output)
        if result.finished:
            break
    return out


@settings(deadline=None, max_examples=8)
@given(st.lists(st.integers(1, 60), max_size=12), st.lists(st.integers(1, 60), max_size=12))
def test_any_step_sizes_give_every_sample_once(
    float_codec: Codec,
    frames: AcousticFeatures,
    whole: Array,
    codec_steps: list[int],
    vocoder_steps: list[int],
) -> None:
    key, vocoder = JobKey("s", "w"), Vocoder()
    float_codec.start(key, SpeechJob("heart"))
    float_codec.feed(key, frames, True)
    spectra = steps(float_codec, key, codec_steps)
    float_codec.release(key)
    vocoder.start(key, SpeechJob("heart", seed=7))
    for i, item in enumerate(spectra):
        assert isinstance(item, Spectra)
        vocoder.feed(key, item.payload, i + 1 == len(spectra))
    pcm = b"".join(o.pcm for o in steps(vocoder, key, vocoder_steps) if isinstance(o, Pcm))
    vocoder.release(key)
    heard = np.frombuffer(pcm, "<i2").astype(int)
    wanted = np.frombuffer(to_pcm(whole), "<i2").astype(int)
    assert len(heard) == len(wanted)
    assert np.abs(heard - wanted).max() <= 1


def test_the_vocoder_is_two_hops_behind_until_the_last_frame(
    float_codec: Codec, frames: AcousticFeatures
) -> None:
    key, vocoder = JobKey("s", "w"), Vocoder()
    vocoder.start(key, SpeechJob("heart"))
    rendered = float_codec.render(frames, pulse_train(frames.f0), 0, 9)
    vocoder.feed(key, rendered.part(0, 8), False)
    (first,) = vocoder.step([StepRequest(key, 8)])
    assert isinstance(first.output, Pcm)
    assert len(first.output.pcm) == 2 * 6 * 300
    assert not first.finished
    vocoder.feed(key, rendered.part(8, 9), True)
    (last,) = vocoder.step([StepRequest(key, 8)])
    assert isinstance(last.output, Pcm)
    assert len(last.output.pcm) == 2 * 3 * 300
    assert last.finished
    assert vocoder.capabilities.samples_behind == 600


def test_a_seed_fixes_the_noise(float_codec: Codec, frames: AcousticFeatures) -> None:
    rendered = float_codec.render(frames, pulse_train(frames.f0), 0, 20)

    def pcm(engine_seed: int, job_seed: int) -> bytes:
        key, vocoder = JobKey("s", "w"), vocoders.create({"seed": engine_seed}, ModelStore())
        vocoder.start(key, SpeechJob("heart", job_seed))
        vocoder.feed(key, rendered, True)
        (output,) = steps(vocoder, key, [100])
        assert isinstance(output, Pcm)
        return output.pcm

    assert pcm(1, 2) == pcm(1, 2)
    assert pcm(1, 2) != pcm(1, 3)
    assert pcm(1, 2) != pcm(2, 2)
    assert pcm(1, -2) == pcm(1, -2)


def test_two_clauses_in_one_job_follow_each_other(
    float_codec: Codec, frames: AcousticFeatures
) -> None:
    key = JobKey("s", "w")
    float_codec.start(key, SpeechJob("heart"))
    float_codec.feed(key, frames, False)
    float_codec.feed(key, frames, True)
    sizes = [o.units for o in steps(float_codec, key, [100] * 50) if isinstance(o, Spectra)]
    float_codec.release(key)
    assert sum(sizes) == 2 * frames.units


def test_loud_waves_bend_instead_of_clipping() -> None:
    pcm = np.frombuffer(to_pcm(np.linspace(-3, 3, 601, dtype=np.float32)), "<i2").astype(int)
    assert (np.diff(pcm) >= 0).all()
    assert abs(pcm).max() <= 32767
    quiet = np.linspace(-0.8, 0.8, 101, dtype=np.float32)
    assert to_pcm(quiet) == np.rint(quiet * 32767).astype("<i2").tobytes()


@pytest.mark.parametrize(
    ("create", "options", "message"),
    [
        (codecs.create, {"precision": "int4"}, "precision"),
        (codecs.create, {"max_batch": "two"}, "max_batch"),
        (vocoders.create, {"seed": 0.5}, "seed"),
    ],
)
def test_wrong_options_are_named(create, options: dict[str, object], message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        create(options, ModelStore())
