"""What the user said is kept for prompts, within a bound; the oldest go, several at once."""

import pytest

from session_server.session import host_adapter
from session_server.session.input_timeline import InputTimeline, KeptSounds
from session_server.types.prompt import PromptMessage, UserAudio

pytestmark = pytest.mark.unit


def test_the_oldest_sounds_give_way_until_half_is_free():
    kept = KeptSounds(100)
    for i in range(5):
        kept.keep((f"i{i}", 0), bytes([i]) * 20)
    assert kept.get(("i0", 0)) == bytes(20)
    kept.keep(("i5", 0), b"x" * 20)
    assert [bool(kept.get((f"i{i}", 0))) for i in range(6)] == [
        False,
        False,
        False,
        False,
        True,
        True,
    ]
    kept.keep(("i5", 0), b"y" * 40)
    assert kept.get(("i5", 0)) == b"y" * 40
    kept.keep(("huge", 0), bytes(101))
    assert kept.get(("huge", 0)) == b""
    assert kept.get(("i4", 0))


def test_a_prompt_has_the_sound_the_words_or_is_left_out():
    audio = InputTimeline(16_000, 1000)
    audio.append(b"ab" * 8, b"ab" * 8)
    audio.keep("kept", 1, b"cd")
    said = (
        PromptMessage("user", "", audio=UserAudio(0, 0, "kept", 1)),
        PromptMessage("user", "words", audio=UserAudio(0, 0, "gone", 0)),
        PromptMessage("user", "", audio=UserAudio(0, 0, "gone", 0)),
        PromptMessage("user", "", audio=UserAudio(2, 4)),
        PromptMessage("assistant", "typed"),
    )
    prompt = [(m.content, m.audio) for m in host_adapter._prompt(said, audio)]
    assert prompt == [("", b"cd"), ("words", None), ("", b"abab"), ("typed", None)]
