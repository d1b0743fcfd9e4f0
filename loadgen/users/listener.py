"""What a virtual user hears: answers, how they are played, and when they end.

Pure. Owns the player and one `Answer` per response of this connection. A *fence* is the first event that says that an
answer is over before its end (`speech_started` over it, `output_audio_buffer.cleared`, a mute for good, a cancelled
`response.done`); at a fence the client drops what it has not played. Audio of that answer which comes later is stale:
counted, never played. Without acknowledgements the client is a stock one: it truncates what it cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.records import ResponseIds, UserRecord
from loadgen.users.acks import Acks
from loadgen.users.events import (
    Audio,
    AudioComplete,
    Cleared,
    Muted,
    ResponseCreated,
    ResponseDone,
    ResponseNamed,
    SpeechStarted,
    Unmuted,
)
from loadgen.users.intents import Intent, Truncate
from loadgen.users.player import Part, Player
from loadgen.users.script import NEVER
from session_server.types.audio import OUTPUT_RATE, samples_to_ms


@dataclass(frozen=True, slots=True)
class ClientTiming:
    """What the user listens with. `origin_ns`: an instant of the sound card's grid. `preroll_ns`: what it gathers before
    it plays. `ack_interval_ns` 0: a stock client, which drops and truncates instead."""

    origin_ns: int = 0
    preroll_ns: int = 0
    ack_interval_ns: int = 0


class Answer:
    """One response of this connection. `status` is None while it runs."""

    __slots__ = (
        "created", "duck", "error", "fence", "fence_event", "first_byte", "id", "last_byte", "parts", "status",
    )  # fmt: skip

    def __init__(self, response: str, created: int) -> None:
        self.id = response
        self.created = created
        self.first_byte: int | None = None
        self.last_byte: int | None = None
        self.status: str | None = None
        self.error: str | None = None
        self.duck: int | None = None
        self.fence: int | None = None
        self.fence_event = ""
        self.parts: list[Part] = []

    @property
    def over(self) -> bool:
        """No more audio of it will be accepted."""
        return self.status is not None or self.fence is not None

    def gaps(self) -> list[int]:
        return [gap for part in self.parts for gap in part.gaps]

    def received(self) -> int:
        return sum(part.received for part in self.parts)


class Listener:
    """Takes the events that concern output; returns what the client says in return."""

    def __init__(
        self, user: int, record: UserRecord, ids: ResponseIds, client: ClientTiming
    ) -> None:
        self.answers: dict[str, Answer] = {}
        self._running: set[str] = set()
        self._parts: dict[str, Part] = {}
        self._user = user
        self._record = record
        self._ids = ids
        self._player = Player(client.origin_ns, client.preroll_ns)
        interval_ns = client.ack_interval_ns
        self._acks = Acks(self._player, interval_ns) if interval_ns else None

    # -- reports

    def set_ack_interval(self, interval_ns: int) -> None:
        if self._acks is not None:
            self._acks.interval_ns = interval_ns

    def next_at(self) -> int:
        return self._acks.due if self._acks is not None else NEVER

    def report(self, now: int) -> list[Intent]:
        return self._acks.report(now) if self._acks is not None and self._acks.due <= now else []

    def stop(self) -> None:
        """The connection is gone: nobody to report to."""
        self._acks = None

    # -- what is asked

    def heard_out(self, answer: Answer, now: int) -> bool:
        """The answer has ended and all of it that will be played has been."""
        if not answer.over:
            return False
        here = self._player.position(now)
        return not any(part.busy(here) for part in answer.parts)

    def heard_out_at(self, answer: Answer) -> int:
        """When that will be, as far as is known; NEVER if it is not."""
        if not answer.over:
            return NEVER
        ends = 0
        for part in answer.parts:
            silent = part.silent_from()
            if silent is None or not part.complete:
                return NEVER
            ends = max(ends, self._player.instant(silent))
        return ends

    def quiet(self, now: int) -> bool:
        """Nothing runs, nothing sounds."""
        return not self._running and self._player.idle(now)

    def first_audible(self, answer: Answer, now: int) -> int | None:
        """When the first sample that can be heard left the player; None until the device has taken it."""
        here = self._player.position(now)
        known = [p for p in (part.first_loud() for part in answer.parts) if p is not None]
        first = min(known, default=here)
        return self._player.instant(first) if first < here else None

    def sounds_at(self, answer: Answer) -> int:
        """When the device takes that sample, as far as is known; NEVER if it is not."""
        known = [p for p in (part.first_loud() for part in answer.parts) if p is not None]
        return self._player.taken_at(min(known)) if known else NEVER

    def last_audible(self, answer: Answer, now: int) -> int | None:
        """When the last audible sample taken so far has left the player."""
        here = self._player.position(now)
        known = [p for p in (part.last_loud(here) for part in answer.parts) if p is not None]
        return self._player.instant(max(known)) if known else None

    def played(self, answer: Answer, now: int) -> int:
        """Samples that the device has taken."""
        here = self._player.position(now)
        return sum(part.taken(here) for part in answer.parts)

    # -- what happens

    def audio(self, event: Audio, now: int) -> Answer | None:
        """Returns the answer it belongs to; None if that is none of ours, or over."""
        answer = self.answers.get(event.response)
        if answer is None:
            self._record.leaks += 1
            return None
        answer.last_byte = now
        self._record.received_samples += event.samples
        if answer.over:
            self._record.stale_chunks += 1
            self._record.stale_samples += event.samples
            return None
        part = self._parts.get(event.item)
        if part is None:
            part = self._new_part(answer, event, now)
        if event.loud is not None and part.loud is not None:
            part.loud += event.loud
        self._player.receive(part, event.samples, now)
        if self._acks is not None and self._acks.still:
            self._acks.look(now)
        return answer

    def _new_part(self, answer: Answer, event: Audio, now: int) -> Part:
        part = Part(answer.id, event.item, event.content_index)
        if event.loud is not None:
            part.loud = bytearray()
        self._parts[event.item] = part
        answer.parts.append(part)
        if answer.first_byte is None:
            answer.first_byte = now
        if self._acks is not None:
            self._acks.watch(part)
        return part

    def audio_complete(self, event: AudioComplete, now: int) -> Sequence[Intent]:
        part = self._parts.get(event.item)
        if part is not None:
            if part.loud is not None:
                part.loud += event.loud
            self._player.complete(part, now)
            self._look(now)
        return ()

    def created(self, event: ResponseCreated, now: int) -> Sequence[Intent]:
        if not self._ids.claim(event.response, self._user):
            self._record.leaks += 1
        self.answers[event.response] = Answer(event.response, now)
        self._running.add(event.response)
        return ()

    def named(self, event: ResponseNamed, now: int) -> Sequence[Intent]:
        self._known(event.response)
        return ()

    def done(self, event: ResponseDone, now: int) -> Sequence[Intent]:
        answer = self._known(event.response)
        if answer is None:
            return ()
        answer.status = event.status
        answer.error = event.error
        self._running.discard(answer.id)
        if answer.status == "cancelled":
            return self._fence(answer, "response.done", now)
        for part in answer.parts:
            self._player.complete(part, now)
        self._look(now)
        return ()

    def muted(self, event: Muted, now: int) -> Sequence[Intent]:
        answer = self.answers.get(event.response)
        if answer is None:
            return ()
        if not event.reversible:
            return self._fence(answer, "playback.mute", now)
        answer.duck = now
        self._player.pause(now)
        self._look(now)
        return ()

    def unmuted(self, event: Unmuted, now: int) -> Sequence[Intent]:
        self._player.resume(now)
        self._look(now)
        return ()

    def cleared(self, event: Cleared, now: int) -> Sequence[Intent]:
        answer = self.answers.get(event.response)
        if answer is None:
            return ()
        intents = self._fence(answer, "output_audio_buffer.cleared", now)
        if event.said is not None and answer.fence == now:
            answer.fence = event.said
        return intents

    def speech_started(self, event: SpeechStarted, now: int) -> Sequence[Intent]:
        """Everything that sounds, or waits to, is cut."""
        heard = [self.answers[response] for response in self._player.responses(now)]
        name = "input_audio_buffer.speech_started"
        return [intent for answer in heard for intent in self._fence(answer, name, now)]

    def _fence(self, answer: Answer, event: str, now: int) -> Sequence[Intent]:
        if answer.fence is not None:
            return ()
        answer.fence = now
        answer.fence_event = event
        cut = self._player.flush(answer.id, now)
        if self._acks is not None:
            self._acks.look(now)
            return ()
        here = self._player.position(now)
        return [
            Truncate(p.item, p.content_index, samples_to_ms(p.taken(here), OUTPUT_RATE))
            for p in cut
        ]

    def _known(self, response: str) -> Answer | None:
        answer = self.answers.get(response)
        if answer is None:
            self._record.leaks += 1
        return answer

    def _look(self, now: int) -> None:
        if self._acks is not None:
            self._acks.look(now)
