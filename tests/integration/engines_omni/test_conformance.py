"""Each Omni stage keeps the contract of stepped engines, by the checks that every engine passes."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from engines.base import (
    JobKey,
    PictureJob,
    SpeechJob,
    Stage,
    SteppedEngine,
    TalkJob,
    TalkPiece,
    ThinkJob,
)
from engines.conformance import stepped
from engines.conformance.stepped import SteppedKit
from engines.model_store.store import ModelStore
from engines.omni.stage_payloads import CodecFrames
from tests.integration.engines_omni.answering import Answer, heard, think
from tests.integration.engines_omni.conftest import sound
from tests.integration.engines_omni.kinds import QWEN2_5, QWEN3, Kind
from tests.integration.engines_omni.looking import embedded, painted, shown

pytestmark = pytest.mark.integration
SLOTS = 3
GREEDY = {"temperature": 0.0, "slots": SLOTS}
SEEING = "thinker with pictures"
STAGES = (Stage.THINKER, Stage.TALKER, Stage.VOCODER)
ALL = (*STAGES, SEEING, Stage.VISION)


def nearly(one: object, other: object) -> bool:
    """Of s16le: the last bit may be rounded otherwise in another batch."""
    if not isinstance(one, bytes) or not isinstance(other, bytes):
        return one == other
    a, b = (np.frombuffer(pcm, "<i2").astype(int) for pcm in (one, other))
    return len(a) == len(b) and int(np.abs(a - b).max(initial=0)) <= 1


def the_same_picture(one: object, other: object) -> bool:
    import torch

    (a,), (b,) = one, other
    return a.mark == b.mark and torch.allclose(a.payload.embeds, b.payload.embeds, atol=1e-4)


def stage_name(stage: Stage | str) -> str:
    return stage if isinstance(stage, str) else stage.value


@pytest.fixture(scope="module")
def kits(kind: Kind, options, tmp_path_factory) -> dict[Stage | str, SteppedKit]:
    store = ModelStore(tmp_path_factory.mktemp("store"))
    thinker, talker, vocoder = kind.factories

    def thinks() -> SteppedEngine:
        return thinker.create({**options, **GREEDY, "context": 512, "max_tokens": 6}, store)

    teller = thinks()
    teller.load()
    answers = [Answer(JobKey("for the talker", f"r{n}")) for n in range(SLOTS + 1)]
    for n, answer in enumerate(answers):
        teller.start(answer.key, heard(sound(0.3 + 0.1 * n, n)))
        think(teller, [answer])
        teller.release(answer.key)
    teller.close()

    def pieces(n: int) -> list[TalkPiece]:
        told = zip(answers[n].texts, answers[n].payloads, strict=True)
        return [TalkPiece(text, payloads) for text, payloads in told if payloads]

    def frames(n: int) -> list[CodecFrames]:
        codes = kind.random_codes(9 + n, n)
        return [CodecFrames(codes[:4]), CodecFrames(codes[4:])]

    def sees() -> SteppedEngine:
        return kind.eyes.create({**options, "slots": SLOTS, "max_batch": 2}, store)

    eyes = sees()
    eyes.load()
    seen = embedded(eyes, *(painted(n, 90 + 40 * (n % 3), 130) for n in range(SLOTS + 1)))
    eyes.close()

    exact = {"left_frames": 0} if kind is QWEN3 else {}

    def held(engine: SteppedEngine) -> int:
        return engine.jobs_held

    return {
        Stage.THINKER: SteppedKit(
            thinks,
            lambda n: heard(sound(0.3 + 0.1 * n, n)),
            held=held,
            bad_job=ThinkJob("hello " * 500, ()),
        ),
        SEEING: SteppedKit(
            thinks,
            lambda n: heard(sound(0.3, n), shown(seen[n], words="Look.")),
            held=held,
            bad_job=heard(sound(0.3, 1), shown(replace(seen[0], payload="of another model"))),
        ),
        Stage.VISION: SteppedKit(
            sees,
            lambda n: PictureJob(painted(n, 90 + 40 * (n % 3), 130)),
            held=held,
            same=the_same_picture,
        ),
        Stage.TALKER: SteppedKit(
            lambda: talker.create({**options, **GREEDY, "context": 256, "max_frames": 10}, store),
            lambda _: TalkJob("ethan"),
            pieces,
            held=held,
            bad_job=TalkJob("nobody"),
        ),
        Stage.VOCODER: SteppedKit(
            lambda: vocoder.create({**options, **exact, "slots": SLOTS}, store),
            lambda _: SpeechJob("ethan"),
            frames,
            same=nearly,
            # a denoised chunk sees only so much of its neighbours
            sizes_matter=kind is QWEN2_5,
            sizes=(3, 16, 100_000),
            held=held,
            bad_job=SpeechJob("nobody") if kind is QWEN2_5 else None,
        ),
    }


@pytest.fixture(scope="module")
def loaded(kits):
    engines = {stage: kits[stage].create() for stage in ALL}
    for engine in engines.values():
        engine.load()
    yield engines
    for engine in engines.values():
        engine.close()


@pytest.mark.parametrize("stage", ALL, ids=stage_name)
@pytest.mark.parametrize("check", stepped.CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(kits, loaded, stage: Stage | str, check: Callable[..., None]):
    check(kits[stage], loaded[stage])
    assert loaded[stage].jobs_held == 0


@pytest.mark.parametrize("stage", ALL, ids=stage_name)
def test_a_storm_leaves_nothing_behind(kits, loaded, stage: Stage | str):
    for seed in range(3):
        stepped.storm(kits[stage], loaded[stage], seed)


@pytest.mark.parametrize("stage", ALL, ids=stage_name)
def test_it_can_be_closed_and_loaded_again(kits, stage: Stage | str):
    stepped.an_engine_that_was_closed_can_be_loaded_again(kits[stage])
