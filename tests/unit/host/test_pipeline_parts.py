"""What a session keeps of embedded pictures: bounded, its own, and nothing after it."""

import pytest

from engines.base import EmbeddedPicture
from session_server.host.pipeline_parts import MOST_FRAMES, MOST_TOKENS, PictureMemory

pytestmark = pytest.mark.unit


def picture(number: int, tokens: int = 300) -> EmbeddedPicture:
    return EmbeddedPicture(f"<picture {number:016x}>", tokens, 640, 480, object())


def test_the_newest_frames_of_the_camera_are_kept_and_those_of_items_beside_them():
    memory, item = PictureMemory(), picture(1000)
    memory.keep("s", item, camera=False)
    frames = [picture(n) for n in range(3 * MOST_FRAMES)]
    for frame in frames:
        memory.keep("s", frame, camera=True)
    assert memory.of("s") == {p.mark: p for p in [item, *frames[-MOST_FRAMES:]]}


def test_a_frame_that_comes_again_is_the_newest():
    memory = PictureMemory()
    for number in [*range(MOST_FRAMES), 0, MOST_FRAMES]:
        memory.keep("s", picture(number), camera=True)
    assert picture(0).mark in memory.of("s")
    assert picture(1).mark not in memory.of("s")


def test_items_are_bounded_by_tokens_and_leave_by_the_half():
    memory, most = PictureMemory(), MOST_TOKENS // 512
    for number in range(most):
        memory.keep("s", picture(number, 512), camera=False)
    assert len(memory.of("s")) == most
    memory.keep("s", picture(most, 512), camera=False)
    assert list(memory.of("s")) == [picture(n).mark for n in range(most // 2 + 1, most + 1)]
    memory.keep("s", picture(999, MOST_TOKENS + 1), camera=False)
    assert picture(999).mark not in memory.of("s")


def test_the_same_picture_counts_once():
    memory = PictureMemory()
    for _ in range(100):
        memory.keep("s", picture(1, MOST_TOKENS), camera=False)
    assert list(memory.of("s")) == [picture(1).mark]


def test_a_session_finds_its_own_pictures_and_none_when_it_is_over():
    memory = PictureMemory()
    memory.keep("a", picture(1), camera=True)
    memory.keep("b", picture(2), camera=False)
    assert list(memory.of("a")) == [picture(1).mark]
    memory.close("a")
    memory.close("a")
    assert not memory.of("a")
    assert len(memory) == 1
