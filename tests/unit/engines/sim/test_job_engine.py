"""Costs and faults of the simulated engines."""

import threading
from pathlib import Path

import pytest

from engines.base import ClauseJob, JobKey, Speech, SpeechJob, StepRequest
from engines.model_store.store import ModelStore
from engines.options import by_type
from engines.registry import factory
from engines.sim import job_engine
from engines.sim.job_engine import Machine, SimOptions, SimulatedFault
from engines.sim.speech import (
    CodecOptions,
    SimCodec,
    SimFrames,
    SimTalker,
    SimVocoder,
    TalkerOptions,
    VocoderOptions,
)

pytestmark = pytest.mark.unit

KEY = JobKey("s", "w")
SIM = ["sim.asr", "sim.turn", "sim.thinker", "sim.talker", "sim.codec", "sim.vocoder"]


def test_cost_is_base_and_items_and_units() -> None:
    codec = SimCodec(CodecOptions(base_s=1.0, per_item_s=0.1, per_unit_s=0.01, scale=2.0))
    keys = [JobKey("s", "a"), JobKey("s", "b")]
    for key in keys:
        codec.start(key, SpeechJob("heart"))
        codec.feed(key, SimFrames("w", 0, 20), True)
    codec.step([StepRequest(key, 8) for key in keys])
    assert codec.cost_s == pytest.approx(2 * (1.0 + 0.2 + 0.16))


def test_virtual_cost_takes_no_time_and_real_cost_does(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(job_engine.time, "sleep", slept.append)
    for real_time in (False, True):
        talker = SimTalker(TalkerOptions(base_s=50.0, real_time=real_time))
        talker.start(KEY, ClauseJob("hello", "heart"))
        talker.step([StepRequest(KEY, 1)])
        assert talker.cost_s == 50.0
    assert slept == [50.0]


def test_it_throws_at_the_step_that_was_asked_for_and_only_once() -> None:
    machine = Machine(SimOptions(throw_at_step=2))
    machine.step([], {}, lambda *_: pytest.fail("no job"))
    with pytest.raises(SimulatedFault, match="step 2"):
        machine.step([], {}, lambda *_: pytest.fail("no job"))
    machine.close()
    machine.load()
    machine.step([], {}, lambda *_: pytest.fail("no job"))


def test_a_hanging_step_ends_when_the_engine_is_closed() -> None:
    machine = Machine(SimOptions(hang_at_step=1))
    ended: list[BaseException] = []

    def hang() -> None:
        try:
            machine.step([], {}, lambda *_: pytest.fail("no job"))
        except SimulatedFault as fault:
            ended.append(fault)

    thread = threading.Thread(target=hang)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    machine.close()
    thread.join(40)
    assert len(ended) == 1


def test_a_runaway_talker_claims_far_too_much_speech() -> None:
    talker = SimTalker(TalkerOptions(runaway_s=318.0))
    talker.start(KEY, ClauseJob("hello", "heart"))
    (result,) = talker.step([StepRequest(KEY, 1)])
    assert isinstance(result.output, Speech)
    assert result.output.samples == 318 * 24_000


@pytest.mark.parametrize(("garbage", "excess"), [("odd", 1), ("short", -2), ("long", 2)])
def test_a_broken_vocoder_gives_wrong_sizes(garbage: str, excess: int) -> None:
    talker, codec = SimTalker(TalkerOptions()), SimCodec(CodecOptions())
    vocoder = SimVocoder(VocoderOptions(garbage=garbage))
    talker.start(KEY, ClauseJob("hello", "heart"))
    speech = talker.step([StepRequest(KEY, 1)])[0].output
    codec.start(KEY, SpeechJob("heart"))
    codec.feed(KEY, speech.frames, True)  # type: ignore[union-attr]
    spectra = codec.step([StepRequest(KEY, 100)])[0].output
    vocoder.start(KEY, SpeechJob("heart"))
    vocoder.feed(KEY, spectra.payload, True)  # type: ignore[union-attr]
    pcm = vocoder.step([StepRequest(KEY, 100)])[0].output.pcm  # type: ignore[union-attr]
    assert len(pcm) == 2 * speech.samples + excess  # type: ignore[union-attr]


def test_a_silent_vocoder_gives_zeros() -> None:
    vocoder = SimVocoder(VocoderOptions(zeros=True))
    codec = SimCodec(CodecOptions())
    codec.start(KEY, SpeechJob("heart"))
    codec.feed(KEY, SimFrames("w", 0, 4), True)
    spectra = codec.step([StepRequest(KEY, 100)])[0].output
    vocoder.start(KEY, SpeechJob("heart"))
    vocoder.feed(KEY, spectra.payload, True)  # type: ignore[union-attr]
    assert vocoder.step([StepRequest(KEY, 100)])[0].output.pcm == bytes(2400)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", SIM)
@pytest.mark.parametrize(
    ("options", "message"),
    [({"speeed": 1}, "speeed"), ({"base_s": "slow"}, "base_s"), ({"real_time": 1}, "real_time")],
)
def test_wrong_options_are_named(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        factory(name)(options, ModelStore(Path("none")))


def test_whole_numbers_are_taken_for_seconds_and_slots_can_be_set() -> None:
    read = by_type({"base_s": 1, "slots": 3}, SimOptions())
    assert read == SimOptions(base_s=1.0, slots=3)
    with pytest.raises(ValueError, match="slots"):
        by_type({"slots": "many"}, SimOptions())
