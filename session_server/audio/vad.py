"""What the session asks of a voice activity detector."""

from __future__ import annotations

from typing import Protocol

from session_server.audio.formats import Int16


class VoiceActivity(Protocol):
    """A detector with the state of one input stream; calls are inline and cheap (well below 1 ms)."""

    def probability(self, frame: Int16) -> float:
        """How likely speech is in the next FRAME_SAMPLES samples at INPUT_RATE: 0 to 1."""
        ...

    def reset(self) -> None:
        """Forget the stream (input cleared, or a gap in it)."""
        ...
