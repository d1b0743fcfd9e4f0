"""Talker and vocoder of a graph on vllm-omni keep the contract of stepped engines; the speech is made by hand here."""

import json
import threading
from pathlib import Path

import pytest

from engines.base import (
    AcousticFrames,
    GroupSize,
    JobKey,
    SpeechJob,
    StepRequest,
    TalkJob,
    TalkPiece,
)
from engines.conformance.stepped import (
    CHECKS,
    Check,
    SteppedKit,
    an_engine_that_was_closed_can_be_loaded_again,
    storm,
)
from engines.model_store.store import ModelStore
from engines.vllm_omni import speech_stages
from engines.vllm_omni.speech_buffer import SpeechBuffer
from session_server.types.errors import ModelsMissing

pytestmark = pytest.mark.unit

UNIT = 1920
KEY = JobKey("session", "answer")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    decoder = {"upsample_rates": [8, 5, 4, 3], "upsampling_ratios": [2, 2]}
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "qwen3_omni_moe", "code2wav_config": decoder})
    )
    (tmp_path / "model.safetensors").touch()
    return tmp_path


def speech(frames: int, ended: bool = True) -> SpeechBuffer:
    sound = SpeechBuffer(UNIT, 2, 4, threading.Condition(), lambda tokens, frames: None)
    sound.put(bytes(2 * UNIT * frames - 1110))
    if ended:
        sound.end()
    return sound


def frames_of(n: int) -> list[tuple[bytes, ...]]:
    return [(bytes([n + 1, 0]) * UNIT,) * 3, (bytes([n + 1, 1]) * UNIT,) * 5]


@pytest.fixture(params=["talker", "vocoder"])
def kit(request: pytest.FixtureRequest, weights: Path) -> SteppedKit:
    options = {"weights": str(weights)}
    if request.param == "vocoder":
        return SteppedKit(
            lambda: speech_stages.create_wave(options, ModelStore()),
            lambda n: SpeechJob("ethan"),
            frames_of,
            held=lambda engine: engine.jobs_held,  # type: ignore[attr-defined]
        )
    return SteppedKit(
        lambda: speech_stages.create_talker(options, ModelStore()),
        lambda n: TalkJob("ethan"),
        lambda n: [TalkPiece("one", (speech(9 + n),)), "two", "three"],
        held=lambda engine: engine.jobs_held,  # type: ignore[attr-defined]
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(kit: SteppedKit, check: Check):
    engine = kit.create()
    engine.load()
    check(kit, engine)
    engine.close()


def test_a_storm_leaves_nothing_and_it_can_be_loaded_again(kit: SteppedKit):
    engine = kit.create()
    engine.load()
    for seed in range(3):
        storm(kit, engine, seed)
    an_engine_that_was_closed_can_be_loaded_again(kit)


def made(weights: Path) -> speech_stages.OmniTalker:
    engine = speech_stages.create_talker({"weights": str(weights)}, ModelStore())
    engine.load()
    engine.start(KEY, TalkJob("ethan"))
    return engine


def test_text_is_used_up_as_far_as_a_chunk_needs_it_before_any_of_it_is_heard(weights: Path):
    engine = made(weights)
    sound = SpeechBuffer(UNIT, 2, 4, threading.Condition(), lambda tokens, frames: None)
    engine.feed(KEY, TalkPiece("a", (sound,)), False)
    for _ in range(20):
        engine.feed(KEY, "b", False)
    (result,) = engine.step([StepRequest(KEY, 100)])
    assert isinstance(result.output, AcousticFrames)
    assert (result.output.units, result.output.pieces) == (0, 11)
    sound.put(bytes(2 * UNIT * 4))
    (result,) = engine.step([StepRequest(KEY, 100)])
    assert isinstance(result.output, AcousticFrames)
    assert (result.units, result.output.pieces, result.finished) == (4, 4, False)


def test_a_step_waits_for_what_is_not_there_no_longer_than_a_moment(weights: Path):
    engine = made(weights)
    sound = speech(1, ended=False)
    engine.feed(KEY, TalkPiece("a", (sound,)), False)
    engine.step([StepRequest(KEY, 5)])
    (result,) = engine.step([StepRequest(KEY, 5)])
    assert (result.units, result.output, result.finished) == (0, None, False)
    later = threading.Timer(0.01, sound.put, [bytes(2 * UNIT)])
    later.start()
    results = [engine.step([StepRequest(KEY, 5)])[0] for _ in range(3)]
    later.join()
    assert sum(result.units for result in results) == 1


def test_the_size_of_groups_reaches_the_speech_even_when_it_is_told_first(weights: Path):
    engine = made(weights)
    told: list[tuple[int, int]] = []
    sound = SpeechBuffer(
        UNIT, 2, 4, threading.Condition(), lambda t, frames: told.append((t, frames))
    )
    engine.feed(KEY, GroupSize(3), False)
    engine.feed(KEY, TalkPiece("a", (sound,)), False)
    assert told[-1][1] == 3
    engine.feed(KEY, GroupSize(6), False)
    assert told[-1][1] == 6


def test_text_of_another_thinker_is_told_in_one_line(weights: Path):
    engine = made(weights)
    engine.feed(KEY, "only text", False)
    (result,) = engine.step([StepRequest(KEY, 5)])
    assert result.error == "the thinker gives no speech: this talker needs vllm_omni.thinker"


def test_speech_that_failed_fails_its_answer_alone(weights: Path):
    engine = made(weights)
    other = JobKey("other", "answer")
    engine.start(other, TalkJob("ethan"))
    broken = speech(1, ended=False)
    broken.end("vllm-omni is gone")
    engine.feed(KEY, TalkPiece("a", (broken,)), False)
    engine.feed(other, TalkPiece("a", (speech(2),)), False)
    results = engine.step([StepRequest(KEY, 5), StepRequest(other, 5)])
    assert [result.error for result in results] == ["vllm-omni is gone", None]
    assert results[1].units == 2


def test_weights_that_are_not_there_are_named(tmp_path: Path):
    engine = speech_stages.create_talker({"weights": str(tmp_path / "nowhere")}, ModelStore())
    with pytest.raises(ModelsMissing, match=r"nowhere has no config\.json"):
        engine.load()
