"""The output edge of one session: core audio to deltas, or to a transport that plays it.

Owns one encoder per content part that is being spoken, the echo guard's view of what the listener
is about to hear, and the playout reports of one response that the core has not been given yet. The
ledger counts at OUTPUT_RATE; only here does audio take the client's format, and a part keeps the
one it began with: `rate_of` says how the client counts its samples, for the last MAX_RATES parts. A
`Player` gets the audio as it is, and says itself what sounds when; its word on each 20 ms that have
left is told to the core as often as that can matter.

Invariants: the core knows all that was sent before it is given anything that may decide about an
answer, and from joined reports it comes to the same positions, to the sample, as from each by
itself, since they carry the instant at which it will have been heard; no more than MOST reports are
joined; the first one of a response, one after a gap, and those near the end of what is queued are
told at once.

Units: instants are nanoseconds of the session's clock; positions are samples of the response's own
stream.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from session_server.audio.echo_guard import EchoGuard
from session_server.audio.formats import OutputEncoder
from session_server.core import events
from session_server.core.actions import PartAddress, SendAudio
from session_server.core.turn_taking import TurnState
from session_server.protocol.client_events import PlaybackAck
from session_server.protocol.error_codes import missing
from session_server.protocol.frames import AudioDeltas
from session_server.session import host_adapter
from session_server.transports.base import AudioSent, Outbox, PlayoutTransport
from session_server.types.audio import NS_PER_MS, OUTPUT_RATE, AudioFormat, samples_to_ns

MAX_RATES = 256
"""Spoken items whose sample rate is remembered: far more than may still be played."""

SOONEST_NS = 80 * NS_PER_MS
"""From the wire to the ear: a frame, the client's jitter buffer and its sound card. The guard searches 64 ms ahead of this."""

_BYTES_PER_SAMPLE = 2


class _Part:
    """A content part that is being spoken."""

    def __init__(self, address: PartAddress, format: AudioFormat) -> None:
        self.address = address
        self.encoder = OutputEncoder(format)
        self.deltas = AudioDeltas(
            address.response_id, address.item_id, address.output_index, address.content_index
        )
        self.end_sample = 0


class Voice:
    """Spells `output_audio.delta` and puts it into the outbox. `format` holds for parts that begin later."""

    def __init__(self, outbox: Outbox, echo: EchoGuard | None, format: AudioFormat) -> None:
        self.format = format
        self._outbox = outbox
        self._player = outbox if isinstance(outbox, PlayoutTransport) else None
        self._echo = echo
        self._parts: dict[str, _Part] = {}
        self._rates: OrderedDict[str, int] = OrderedDict()
        self._heard_until_ns = 0

    def say(self, action: SendAudio, new_event_id: Callable[[], str], now: int) -> None:
        """One slice of audio, in order within its part."""
        if self._player is not None:
            self._player.play(action.part.response_id, action.start_sample, action.pcm)
            return
        part = self._parts.get(action.part.item_id)
        if part is None:
            part = self._begin(action.part)
        part.end_sample = action.start_sample + len(action.pcm) // _BYTES_PER_SAMPLE
        self._deliver(part, new_event_id(), part.encoder.push(action.pcm))
        self._expect_echo(action.pcm, now)

    def rate_of(self, item_id: str) -> int:
        """Samples per second in which the client got this item's audio; those of the next one where it got none."""
        if self._player is not None:
            return OUTPUT_RATE
        return self._rates.get(item_id, self.format.rate)

    def _begin(self, address: PartAddress) -> _Part:
        part = self._parts[address.item_id] = _Part(address, self.format)
        self._rates[address.item_id] = self.format.rate
        if len(self._rates) > MAX_RATES:
            self._rates.popitem(last=False)
        return part

    def finish(self, address: PartAddress, event_id: str) -> None:
        """The part is complete: whatever the encoder still holds goes out."""
        if self._player is not None:
            self._player.finish(address.response_id)
        part = self._parts.pop(address.item_id, None)
        if part is not None:
            rest = part.encoder.push(b"", last=True)
            if rest:
                self._deliver(part, event_id, rest)

    def cut(self, response_id: str, now: int) -> int:
        """Nothing more of this response: what is queued goes, what the encoder holds too. Frames that were queued."""
        purged = self._outbox.purge(response_id)
        for item_id in [i for i, p in self._parts.items() if p.address.response_id == response_id]:
            del self._parts[item_id]
        self._heard_until_ns = now
        if self._echo is not None:
            self._echo.cut(now)
        return purged

    # -- a transport that plays

    def hold(self) -> None:
        """Silence, and keep what is queued."""
        if self._player is not None:
            self._player.hold()

    def release(self, response_id: str | None, from_sample: int) -> None:
        """Go on; with a response, again from this sample of it."""
        if self._player is not None:
            self._player.release(response_id, from_sample)

    def sounds(self, pcm: bytes, now: int) -> None:
        """The transport has just sent this. It sounds no sooner than SOONEST_NS from now: so early the guard may know it, and
        what it has worked out for later instants is never overtaken."""
        if self._echo is not None:
            self._echo.playing(now + SOONEST_NS, pcm)

    def starts_at(self, response_id: str) -> int | None:
        """The RTP timestamp at which this response will sound next; None where there is no such thing."""
        return None if self._player is None else self._player.starts_at(response_id)

    def located(self, ack: PlaybackAck) -> PlaybackAck:
        """An acknowledgement that names an RTP timestamp, with the position that this means. Raises ClientFault."""
        if ack.rtp_timestamp is None:
            return ack
        if self._player is None:
            raise missing("played_samples")
        latency_ms = ack.output_latency_ms or 0
        played = self._player.heard(ack.response_id, ack.rtp_timestamp, latency_ms)
        return msgspec.structs.replace(ack, played_samples=played or 0, played_ms=None)

    def _deliver(self, part: _Part, event_id: str, sound: bytes) -> None:
        frame = part.deltas.encode(event_id, sound)
        self._outbox.send_audio(frame, part.address.response_id, part.end_sample)

    def _expect_echo(self, pcm: bytes, now: int) -> None:
        start = max(now, self._heard_until_ns)
        self._heard_until_ns = start + samples_to_ns(len(pcm) // _BYTES_PER_SAMPLE, OUTPUT_RATE)
        if self._echo is not None:
            self._echo.playing(start, pcm)


MOST = 3
LEAST_WAITING = OUTPUT_RATE // 5
"""With less than this in the transport's queue the core has to hear at once: it may have to hand over more, or to see the end."""


class SentReports:
    """One session's. `threshold`: of voice; what is less likely to be one begins no speech."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self._last: AudioSent | None = None
        self._heard_ns = 0
        self._joined = 0
        self._known = ""

    @property
    def waiting(self) -> bool:
        """Something has left that the core does not know of."""
        return self._last is not None

    def add(self, sent: AudioSent, now: int) -> list[events.AudioWritten]:
        """Take in the next one; what the core is to be told now, in order."""
        last = self._last
        other = last is not None and (
            last.response_id != sent.response_id or last.estimated is not sent.estimated
        )
        told = self.take() if other or sent.gap_samples else []
        self._last = sent
        self._heard_ns = now + sent.heard_in_ns
        self._joined += 1
        if (
            self._joined >= MOST
            or sent.gap_samples
            or sent.waiting_samples < LEAST_WAITING
            or sent.response_id != self._known
        ):
            self._known = sent.response_id
            told += self.take()
        return told

    def take(self) -> list[events.AudioWritten]:
        """All that the core does not know of yet, as one event or none."""
        last, self._last, self._joined = self._last, None, 0
        return [] if last is None else [host_adapter.audio_written(last, self._heard_ns)]

    def may_wait(self, event: events.Event, state: TurnState) -> bool:
        """Nothing about an answer can follow from this event: the user is quiet, and stays so."""
        if state is not TurnState.ANSWERING:
            return False
        if isinstance(event, events.SpeechProbability):
            return event.probability < self.threshold
        return isinstance(event, events.AudioAppended)
