"""What open sessions cost the stages: the host's own work beside their steps.

`Listeners` hears for so many sessions as the server does, on a thread of its own as the event loop has: each 20 ms of
each one's microphone on time (message, resampling, voice detection), and each 100 ms of an answer (message, the echo
that is to be expected). A stage's step is timed alone and beside them. Audio is s16le at OUTPUT_RATE.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from session_server.audio.echo_guard import EchoGuard
from session_server.audio.vad import VoiceActivity
from session_server.process.clock import MonotonicClock
from session_server.protocol.client_events import InputAudioAppend, decode_client_event
from session_server.session.audio_input import Ears
from session_server.types.audio import NS_PER_MS, NS_PER_S, OUTPUT_RATE, AudioFormat

_FRAME_BYTES = OUTPUT_RATE // 50 * 2
_FRAME_NS = 20 * NS_PER_MS
_KEEP_MS = 10_000


class Listeners:
    """`count` sessions that hear `sound` again and again."""

    def __init__(self, detectors: Sequence[VoiceActivity], sound: bytes) -> None:
        self._ears = [Ears(AudioFormat.PCM, vad, EchoGuard(), _KEEP_MS) for vad in detectors]
        self._answers = [
            sound[at : at + 5 * _FRAME_BYTES]
            for at in range(0, len(sound) - 5 * _FRAME_BYTES, 5 * _FRAME_BYTES)
        ]
        self._frames = [
            _message(sound[at : at + _FRAME_BYTES])
            for at in range(0, len(sound) - _FRAME_BYTES, _FRAME_BYTES)
        ]
        self._over = threading.Event()

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """While the block lasts."""
        thread = threading.Thread(target=self._run, name="listeners", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self._over.clear()

    def _run(self) -> None:
        clock = MonotonicClock()
        count = max(1, len(self._ears))
        begun, number = clock.now(), 0
        while not self._over.is_set():
            due = begun + number * _FRAME_NS // count
            wait = due - clock.now()
            if wait > 0 and self._over.wait(wait / NS_PER_S):
                return
            self._hear(self._ears[number % count], number // count, clock.now())
            number += 1

    def _hear(self, ears: Ears, frame: int, now: int) -> None:
        message = decode_client_event(self._frames[frame % len(self._frames)], playback=False)
        assert isinstance(message, InputAudioAppend)
        for _ in ears.listen(message.audio, now):
            pass
        if frame % 5 == 0 and ears.echo is not None:
            answer = self._answers[frame // 5 % len(self._answers)]
            _message(answer)
            ears.echo.playing(now, answer)


def _message(pcm: bytes) -> str:
    audio = base64.b64encode(pcm).decode("ascii")
    return f'{{"type":"input_audio_buffer.append","audio":"{audio}"}}'
