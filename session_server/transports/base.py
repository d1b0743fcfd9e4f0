"""What a session and a transport know of each other.

A transport moves frames and audio; it knows neither turns nor events. All calls run on the event loop's thread and
return at once. Frames are complete UTF-8 JSON texts. Audio goes one of two ways: as deltas inside frames (`Outbox.send_audio`),
which the client plays when it likes; or beside the frames, played by the transport itself in real time (`Player`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


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
        """Drop the queued audio of this response; returns how many pieces. They are never written."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Send what is queued, then close. Idempotent."""
        ...


@runtime_checkable
class PlayoutTransport(Protocol):
    """What an outbox also is when the transport plays: a stream that never stops, silence where there is no audio.

    Responses sound one after the other, in the order in which their first audio came. Audio is s16le at OUTPUT_RATE;
    positions are samples of the response's own stream. Instants are RTP timestamps (32 bits, 48 kHz).
    """

    def play(self, response_id: str, start_sample: int, pcm: bytes) -> None:
        """Queue audio that follows on what came before; `Endpoint.on_audio_sent` tells of each piece that leaves."""
        ...

    def finish(self, response_id: str) -> None:
        """No more audio of this response comes; what is queued plays on."""
        ...

    def purge(self, response_id: str) -> int:
        """Drop what is queued of this response: silence from the next frame on."""
        ...

    def hold(self) -> None:
        """Silence from the next frame on; keep what is queued."""
        ...

    def release(self, response_id: str | None, from_sample: int) -> None:
        """Go on after `hold`; with a response, again from this sample of it, as far back as is still known."""
        ...

    def starts_at(self, response_id: str) -> int | None:
        """When the next audio of this response will leave; None: not known yet."""
        ...

    def heard(self, response_id: str, rtp_timestamp: int, latency_ms: int) -> int | None:
        """The client plays `rtp_timestamp`, and its speaker lags `latency_ms` behind: how much of this response that
        is; None: nothing is known of it."""
        ...


class AudioSent(NamedTuple):
    """A piece of a response that a `Player` has just put on the wire.

    `heard_in_ns`: from now until the listener will have heard it to its end; `estimated`: no report of the client stands
    behind that. `gap_samples`: silence that had to go before it, in the middle of the response, because nothing had come.
    `waiting_samples` of the response are queued behind it. A tuple: there are fifty a second.
    """

    response_id: str
    end_sample: int
    pcm: bytes
    heard_in_ns: int
    estimated: bool
    gap_samples: int = 0
    waiting_samples: int = 0


class VideoFrame(Protocol):
    """A camera frame, as it came. The methods take milliseconds: to be called in a worker thread. They raise BadPicture."""

    def luma(self) -> npt.NDArray[np.int16]:
        """How bright it is, area means on the gate's grid."""
        ...

    def encoded(self) -> bytes:
        """The picture as JPEG, PNG or WebP."""
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


class TalkingEndpoint(Endpoint, Protocol):
    """A session that can be on a connection whose audio goes beside the frames."""

    def on_audio(self, pcm: bytes, rate: int) -> None:
        """The microphone: s16le mono at `rate`, always the same one on a connection."""
        ...

    def on_audio_sent(self, sent: AudioSent) -> None: ...

    def on_video(self, frame: VideoFrame, age_ns: int) -> None:
        """The camera: one frame of its track, taken `age_ns` ago."""
        ...

    @property
    def wants_video(self) -> bool:
        """Whether anybody looks at the camera's frames now; else they need not be decoded."""
        ...
