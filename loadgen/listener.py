"""What a virtual user hears: answers, how they are played, and when they end.

Pure. Owns the player and one `Answer` per response of this connection. A *fence* is the first event that
says that an answer is over before its end (`speech_started` over it, `output_audio_buffer.cleared`, a
mute for good, a cancelled `response.done`); at a fence the client drops what it has not played. Audio of that answer which
comes later is stale: counted, never played.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from loadgen.acks import Acks
from loadgen.player import Playback, Player
from loadgen.records import ResponseIds, UserRecord
from loadgen.wire import ServerEvent, truncate
from session_server.media import NS_PER_MS, OUTPUT_RATE, samples_to_ms


@dataclass(slots=True)
class Answer:
    """One response of this connection. `status` is None while it runs."""

    id: str
    created: int
    first_byte: int | None = None
    last_byte: int | None = None
    status: str | None = None
    error: str | None = None
    duck: int | None = None
    fence: int | None = None
    fence_event: str = ""
    items: list[Playback] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """No more audio of it will be accepted."""
        return self.status is not None or self.fence is not None

    def first_audible(self) -> int | None:
        instants = [p.first_audible_ns() for p in self.items]
        return min((i for i in instants if i is not None), default=None)

    def last_audible(self) -> int | None:
        instants = [p.last_audible_ns() for p in self.items]
        return max((i for i in instants if i is not None), default=None)

    def gaps(self) -> list[int]:
        return [gap for p in self.items for gap in p.gaps]

    def received(self) -> int:
        return sum(p.received for p in self.items)

    def played(self) -> int:
        return sum(p.taken for p in self.items)


class Listener:
    """Takes the events that concern output; returns what the client says in return."""

    def __init__(
        self, user: int, record: UserRecord, ids: ResponseIds, origin_ns: int, *, playback: bool
    ) -> None:
        self.answers: dict[str, Answer] = {}
        self._running: set[str] = set()
        self._user = user
        self._record = record
        self._ids = ids
        self._player = Player(origin_ns)
        self._acks = Acks(200 * NS_PER_MS) if playback else None

    def set_ack_interval(self, ms: int) -> None:
        if self._acks is not None:
            self._acks.interval_ns = ms * NS_PER_MS

    def tick(self, now: int) -> list[str]:
        self._player.advance(now)
        return self._acks.due(now) if self._acks is not None else []

    def handle(self, event: ServerEvent, now: int) -> list[str]:
        match event.type:
            case "response.output_audio.delta":
                self._audio(event, now)
            case "response.output_audio.done":
                self._player.complete(event.item_id or "", now)
            case "response.created" if event.response is not None:
                self._created(event.response.id, now)
            case "response.done" if event.response is not None:
                return self._done(event, now)
            case "input_audio_buffer.speech_started":
                return self._fence_all_heard(event.type, now)
            case "output_audio_buffer.cleared" | "playback.mute":
                return self._silenced(event, now)
            case "playback.play":
                self._player.resume(now)
            case _ if event.type.startswith("response.") and event.response_id is not None:
                self._known(event.response_id)
        return []

    def heard_out(self, answer: Answer) -> bool:
        """The answer has ended and all of it that will be played has been."""
        return answer.over and not self._player.busy(answer.id)

    def quiet(self) -> bool:
        """Nothing runs, nothing sounds."""
        return self._player.idle and not self._running

    def _known(self, response: str) -> Answer | None:
        answer = self.answers.get(response)
        if answer is None:
            self._record.leaks += 1
        return answer

    def _created(self, response: str, now: int) -> None:
        if not self._ids.claim(response, self._user):
            self._record.leaks += 1
        self.answers[response] = Answer(response, now)
        self._running.add(response)

    def _audio(self, event: ServerEvent, now: int) -> None:
        answer = self._known(event.response_id or "")
        if answer is None:
            return
        pcm = base64.b64decode(event.delta or "")
        answer.last_byte = now
        self._record.received_samples += len(pcm) // 2
        if answer.over:
            self._record.stale_chunks += 1
            self._record.stale_samples += len(pcm) // 2
            return
        if answer.first_byte is None:
            answer.first_byte = now
        playback = self._player.receive(event.item_id or "", answer.id, pcm, now)
        if playback not in answer.items:
            answer.items.append(playback)
            if self._acks is not None:
                self._acks.watch(playback)

    def _done(self, event: ServerEvent, now: int) -> list[str]:
        body = event.response
        assert body is not None
        answer = self._known(body.id)
        if answer is None:
            return []
        answer.status = body.status or "completed"
        self._running.discard(answer.id)
        if body.status_details is not None and body.status_details.error is not None:
            answer.error = body.status_details.error.code
        if answer.status == "cancelled":
            return self._fence(answer, event.type, now)
        for playback in answer.items:
            self._player.complete(playback.item, now)
        return []

    def _silenced(self, event: ServerEvent, now: int) -> list[str]:
        answer = self.answers.get(event.response_id or "")
        if answer is None:
            return []
        if event.type == "playback.mute" and event.reversible:
            answer.duck = now
            self._player.pause(now)
            return []
        return self._fence(answer, event.type, now)

    def _fence_all_heard(self, event: str, now: int) -> list[str]:
        self._player.advance(now)
        heard = [self.answers[r] for r in self._player.responses()]
        return [message for answer in heard for message in self._fence(answer, event, now)]

    def _fence(self, answer: Answer, event: str, now: int) -> list[str]:
        if answer.fence is not None:
            return []
        answer.fence = now
        answer.fence_event = event
        cut = self._player.flush(answer.id, now)
        if self._acks is not None:
            return []
        return [truncate(p.item, samples_to_ms(p.taken, OUTPUT_RATE)) for p in cut]
