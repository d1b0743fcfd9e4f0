"""What a session and a transport know of each other.

A transport moves frames; it knows neither turns nor events. All calls run on the event loop's thread and
return at once. Frames are complete UTF-8 JSON texts.
"""

from __future__ import annotations

from typing import Protocol


class Outbox(Protocol):
    """The way to one client: a bounded queue with one writer.

    At the byte bound, or when the oldest frame has waited longer than the high-water time, the transport
    closes the connection (1013) and tells the session by `on_closed`; nothing is dropped silently.
    """

    def send(self, frame: bytes) -> None:
        """Queue one event. Ignored after `close`."""
        ...

    def send_audio(self, frame: bytes, response_id: str, end_sample: int) -> None:
        """Queue one audio delta; `Endpoint.on_audio_written` follows when the socket has taken it."""
        ...

    def purge(self, response_id: str) -> int:
        """Drop the queued audio deltas of this response; returns how many. They are never written."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Send what is queued, then close. Idempotent."""
        ...


class Endpoint(Protocol):
    """A session, as a transport sees it. None of these raises."""

    def on_frame(self, frame: str | bytes) -> None:
        """A frame came in; bytes where the peer sent a binary frame."""
        ...

    def on_audio_written(self, response_id: str, end_sample: int) -> None: ...

    def on_closed(self) -> None:
        """The connection is gone (either side, any reason). Called exactly once."""
        ...
