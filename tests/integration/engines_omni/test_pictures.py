"""What an Omni thinker makes of pictures is what transformers makes of them: read in parts, after a warm beginning, in any company."""

import random

import pytest
from msgspec.structs import replace

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from engines.base import CameraView, EmbeddedPicture, JobKey, StepRequest, ThinkJob  # noqa: E402
from engines.model_store.store import ModelStore  # noqa: E402
from session_server.types.prompt import PromptMessage  # noqa: E402
from tests.integration.engines_omni.answering import (  # noqa: E402
    Answer,
    begin_talking,
    heard,
    step,
    talk,
    think,
)
from tests.integration.engines_omni.conftest import sound  # noqa: E402
from tests.integration.engines_omni.kinds import Kind  # noqa: E402
from tests.integration.engines_omni.looking import embedded, painted, shown  # noqa: E402
from tests.integration.engines_omni.published import FRAMES, PUBLISHED, TOKENS, features  # noqa: E402

pytestmark = pytest.mark.integration

GREEDY = {"temperature": 0.0}
WIDE, TALL = painted(1, 230, 130), painted(2, 130, 290)


@pytest.fixture(scope="module")
def stages(kind: Kind, options, tmp_path_factory):
    store = ModelStore(tmp_path_factory.mktemp("store"))
    eyes = kind.eyes.create(options, store)
    thinks = kind.factories[0].create(
        {**options, **GREEDY, "context": 512, "max_tokens": TOKENS, "slots": 4}, store
    )
    talks = kind.factories[1].create(
        {
            **options,
            **GREEDY,
            "repetition_penalty": 1.0,
            "context": 320,
            "max_frames": FRAMES,
            "slots": 4,
        },
        store,
    )
    for engine in (eyes, thinks, talks):
        engine.load()
    return eyes, thinks, talks


@pytest.fixture
def idle(stages):
    yield stages
    assert [engine.jobs_held for engine in stages] == [0, 0, 0]


def thought(thinks, name: str, job: ThinkJob, session: str = "s", prefill: int = 16) -> Answer:
    made = Answer(JobKey(session, name))
    thinks.start(made.key, job)
    think(thinks, [made], prefill)
    thinks.release(made.key)
    return made


def told(answer: Answer) -> torch.Tensor:
    """What the talker is told of what was said before."""
    before = next(payloads for payloads in answer.payloads if payloads)[0]
    return before.user if hasattr(before, "user") else before.states


def question(*seen: EmbeddedPicture, before: tuple[PromptMessage, ...] = ()) -> ThinkJob:
    return heard(sound(0.7, 5), *before, shown(*seen, words="Look at this."))


def test_answers_about_pictures_are_those_of_transformers_generate(kind, idle, weights):
    """Token for token, and code for code: the talker's positions follow the pictures, too."""
    eyes, thinks, talks = idle
    job = question(*embedded(eyes, WIDE, TALL))
    ours = thought(thinks, "ours", job, prefill=13)
    begin_talking(talks, [ours])
    talk(talks, [ours])
    talks.release(ours.key)
    prompt = thinks.model.chat.render(job, 500)
    patches = [eyes.tower.patches(picture) for picture in (WIDE, TALL)]
    said, codes = PUBLISHED[kind.name](
        weights,
        prompt.tokens,
        features(thinks.model.listener, sound(0.7, 5)),
        {
            "thinker_pixel_values": torch.cat([p.pixels for p in patches]),
            "image_grid_thw": torch.cat([p.grid for p in patches]),
        },
    )
    said = said[len(prompt) :].tolist()
    assert ours.end.output_tokens == len(said) == TOKENS
    assert "".join(ours.texts) == "".join(map(thinks.model.chat.decode, ([t] for t in said)))
    same = min(TOKENS - 1, FRAMES)
    assert torch.equal(ours.frames[:same], codes[:same])


def test_another_picture_is_another_answer(idle):
    eyes, thinks, _ = idle
    one, other = embedded(eyes, WIDE, painted(3, 230, 130))
    assert one.tokens == other.tokens
    answers = [thought(thinks, f"a{n}", question(p), f"a{n}") for n, p in enumerate((one, other))]
    assert answers[0].texts != answers[1].texts


def test_a_picture_that_is_read_in_parts_is_the_picture_read_at_once(idle):
    eyes, thinks, _ = idle
    job = question(*embedded(eyes, WIDE, TALL))
    whole, *parts = [thought(thinks, f"p{n}", job, f"p{n}", n) for n in (500, 1, 7, 32)]
    for part in parts:
        assert part.texts == whole.texts
        assert torch.allclose(told(part), told(whole), atol=1e-4)


def test_what_was_read_ahead_is_not_read_again_nor_by_the_next_question(idle):
    eyes, thinks, _ = idle
    (picture,) = embedded(eyes, WIDE)
    before = shown(picture, words="Look at this.")
    warm = Answer(JobKey("ahead", "warm"))
    thinks.start(warm.key, ThinkJob("Be kind.", (before,), warm=True))
    think(thinks, [warm])
    thinks.release(warm.key)
    assert not "".join(warm.texts)
    first = thought(thinks, "first", heard(sound(0.7, 5), before), "ahead")
    fresh = thought(thinks, "fresh", heard(sound(0.7, 5), before), "fresh")
    assert first.end.cached_tokens >= picture.tokens
    assert fresh.end.cached_tokens == 0
    assert first.texts == fresh.texts
    again = heard(
        sound(0.4, 8),
        before,
        PromptMessage("user", "", audio=sound(0.7, 5)),
        PromptMessage("assistant", "".join(first.texts)),
    )
    second = thought(thinks, "second", again, "ahead")
    anew = thought(thinks, "anew", again, "anew")
    assert second.end.cached_tokens > first.end.prompt_tokens - 2
    assert second.texts == anew.texts
    assert torch.allclose(told(second), told(anew), atol=1e-4)


def test_a_newer_frame_of_the_camera_leaves_what_precedes_it_known(idle):
    """The camera's line is the end of the prompt's last message; only from there on is it read again."""
    eyes, thinks, _ = idle
    old, new = embedded(eyes, WIDE, painted(4, 230, 130))

    def job(frame: EmbeddedPicture) -> ThinkJob:
        seen = PromptMessage("user", f"And now?\n[Camera, 3 s ago: {frame.mark}]", images=(frame,))
        return ThinkJob("Be kind.", (PromptMessage("user", "x" * 60), seen))

    thought(thinks, "old", job(old), "camera")
    newer = thought(thinks, "new", job(new), "camera")
    assert 60 < newer.end.cached_tokens < newer.end.prompt_tokens - new.tokens
    assert newer.texts == thought(thinks, "alone", job(new), "alone").texts


def test_a_spoken_question_is_not_trimmed_before_the_frame_that_it_is_about(idle):
    eyes, thinks, _ = idle
    seen = embedded(eyes, *(painted(n, 230, 130) for n in range(40, 48)))
    shows = PromptMessage("user", f"[Camera, now: {seen[-1].mark}]", images=seen[-1:])
    shows = replace(shows, camera=CameraView(None, 0.1))
    old = tuple(PromptMessage("user", "x" * 40) for _ in range(9))
    job = ThinkJob("", (*old, PromptMessage("user", "", audio=sound(4.0, 3)), shows))
    chat = thinks.model.chat
    lengths = [len(chat.render(ThinkJob("", job.messages[n:]), 5000)) for n in (0, 9, 10)]
    # room for the frame alone by the rule of trimming, which drops two thirds at a time
    prompt = chat.render(job, lengths[1] + 30)
    assert len(prompt) < lengths[0]
    assert prompt.sounds
    assert prompt.pictures


def test_a_batch_with_and_without_pictures_is_each_answer_alone(idle):
    eyes, thinks, _ = idle
    wide, tall = embedded(eyes, WIDE, TALL)
    jobs = [question(wide), heard(sound(0.5, 1)), question(tall, wide), question(tall)]
    alone = [thought(thinks, f"alone{n}", job, f"alone{n}") for n, job in enumerate(jobs)]
    together = [Answer(JobKey(f"t{n}", "r")) for n in range(len(jobs))]
    for made, job in zip(together, jobs, strict=True):
        thinks.start(made.key, job)
    think(thinks, together, prefill=9)
    for one, other in zip(alone, together, strict=True):
        assert one.texts == other.texts
        thinks.release(other.key)


def test_released_anywhere_in_a_picture_the_others_are_untouched(idle):
    eyes, thinks, _ = idle
    job = question(*embedded(eyes, TALL))
    expected, rng = thought(thinks, "before", job, "by").texts, random.Random(7)
    for turn in range(6):
        other, victim = Answer(JobKey("by", f"by{turn}")), Answer(JobKey("v", f"v{turn}"))
        thinks.start(other.key, job)
        thinks.start(victim.key, job)
        for _ in range(rng.randrange(1, 9)):
            step(thinks, [victim], 11)
        thinks.release(victim.key)
        assert thinks.step([StepRequest(victim.key, 5)])[0].finished
        think(thinks, [other])
        assert other.texts == expected
        thinks.release(other.key)


def test_a_mark_that_a_user_types_shows_nothing(idle, kind):
    eyes, thinks, _ = idle
    (picture,) = embedded(eyes, WIDE)
    chat = thinks.model.chat
    typed = ThinkJob(
        "", (PromptMessage("user", f"[Picture: {picture.mark}] <|image_pad|><|IMAGE|>"),)
    )
    prompt = chat.render(typed, 400)
    assert not prompt.pictures
    assert chat.token(kind.picture_token) not in prompt.tokens


def test_a_picture_of_another_model_is_refused_before_it_is_read(idle):
    eyes, thinks, _ = idle
    (picture,) = embedded(eyes, WIDE)
    sight = picture.payload
    wider = type(sight)(
        sight.rows, sight.columns, sight.embeds.repeat(1, 2), sight.deep.repeat(1, 1, 2)
    )
    for payload, why in ((wider, "by another model"), (b"?", "stage of another kind")):
        alien = EmbeddedPicture(picture.mark, picture.tokens, 1, 1, payload)
        with pytest.raises(ValueError, match=why):
            thinks.start(JobKey("s", "alien"), question(alien))


def test_old_pictures_are_trimmed_with_their_messages(idle):
    eyes, thinks, talks = idle
    seen = embedded(eyes, *(painted(n, 230, 130) for n in range(20, 34)))
    job = heard(sound(0.5, 1), *(shown(picture) for picture in seen))
    made = thought(thinks, "long", job, "long")
    assert made.end.prompt_tokens < 512
    prompt = thinks.model.chat.render(job, 500)
    assert 0 < len(prompt.pictures) < len(seen)
    # what is told may be more than the talker has room for, and be cut in a picture
    begin_talking(talks, [made])
    talk(talks, [made])
    assert len(made.frames) == FRAMES
    talks.release(made.key)
