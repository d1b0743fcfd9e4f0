"""Speech material: trimmed, framed, cached, shared out."""

from __future__ import annotations

import base64
import json
import random

import numpy as np
import pytest
import soundfile

from loadgen.arrivals import arrivals
from loadgen.speech import (
    BACKCHANNELS,
    INTERRUPTIONS,
    QUESTIONS,
    clip_from_pcm,
    clips_in,
    recorded,
    room_noise,
    share,
    synthesised,
)
from session_server.types.errors import ConfigError
from tests.unit.loadgen.drivers.scripted import silence, tone

pytestmark = pytest.mark.unit

MS = 1_000_000


def pcm_of(frames) -> bytes:
    return b"".join(base64.b64decode(json.loads(frame)["audio"]) for frame in frames)


def test_a_clip_is_trimmed_to_its_speech_and_cut_into_20_ms_messages():
    clip = clip_from_pcm("q", silence(500) + tone(400) + silence(700), "hello")
    assert (clip.onset_ns, clip.end_ns) == (100 * MS, 500 * MS)
    assert len(clip.frames) == 28
    assert pcm_of(clip.frames) == silence(100) + tone(400) + silence(60)


def test_the_room_is_quiet_but_not_dead():
    noise = np.frombuffer(pcm_of(room_noise()), "<i2").astype(float)
    level = 20 * np.log10(np.sqrt(np.mean(noise**2)) / 32768)
    assert -73 < level < -67


def test_recordings_of_any_rate_with_their_words(tmp_path):
    speech = np.sin(np.arange(16_000) * 0.2) * 0.3
    soundfile.write(tmp_path / "b.flac", speech, 16_000)
    soundfile.write(tmp_path / "a.wav", np.stack([speech, speech], 1), 16_000)
    (tmp_path / "a.txt").write_text("hello there\n")
    soundfile.write(tmp_path / "c.wav", np.zeros(16_000), 16_000)
    (tmp_path / "notes.md").write_text("not audio")
    first, second = clips_in(tmp_path)
    assert (first.name, first.text, second.text) == ("a", "hello there", None)
    assert first.end_ns - first.onset_ns == pytest.approx(1000 * MS, abs=20 * MS)


def test_a_folder_without_speech_is_named(tmp_path):
    soundfile.write(tmp_path / "c.wav", np.zeros(16_000), 16_000)
    with pytest.raises(ConfigError, match="no wav or flac file with speech"):
        recorded(tmp_path)


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "broken.wav").write_bytes(b"RIFF")
    with pytest.raises(ConfigError, match=r"broken\.wav"):
        clips_in(tmp_path)


def test_each_sentence_is_spoken_once_and_then_read_from_the_cache(tmp_path):
    spoken = []

    def speak(sentence):
        spoken.append(sentence)
        return silence(100) + tone(200 + len(spoken)) + silence(100)

    first = synthesised(tmp_path, speak)
    sentences = [*QUESTIONS, *INTERRUPTIONS, *BACKCHANNELS]
    assert spoken == sentences
    assert synthesised(tmp_path, speak) == first
    assert len(spoken) == len(sentences)
    assert [clip.text for clip in first.questions] == list(QUESTIONS)


def test_no_two_users_ask_the_same_while_there_are_enough_questions():
    clips = [clip_from_pcm(str(i), tone(100 + i), None) for i in range(24)]
    shares = [share(clips, user, 8, random.Random(user)) for user in range(8)]
    names = [clip.name for own in shares for clip in own]
    assert sorted(names) == sorted(clip.name for clip in clips)
    assert len(share(clips[:3], 5, 8, random.Random(0))) == 1


def test_arrivals():
    rng = random.Random(1)
    assert arrivals("together", 3, rng) == [0.0, 0.0, 0.0]
    ramp = arrivals("ramp:4", 4, rng)
    assert all(i <= start <= i + 0.5 for i, start in enumerate(ramp))
    poisson = arrivals("poisson:2", 2000, rng)
    assert poisson == sorted(poisson)
    assert 900 < poisson[-1] < 1100


@pytest.mark.parametrize("form", ["", "ramp", "ramp:x", "poisson:0", "together:3", "ramp:-1"])
def test_wrong_arrivals_are_named(form):
    with pytest.raises(ConfigError, match="--arrivals"):
        arrivals(form, 2, random.Random(0))
