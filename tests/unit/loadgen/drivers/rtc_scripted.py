"""A caller under a virtual clock, against a server of calls that is written down here: it answers each question with so many
loud frames, on one RTP stream that never stops."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from loadgen.call_reception import FRAME_TICKS
from loadgen.drivers.rtc_client import RtcClient
from loadgen.drivers.wire import decode, encode
from loadgen.drivers.wire_client import UserPlan
from loadgen.records import ResponseIds
from loadgen.users.script import State
from tests.unit.loadgen.drivers.scripted import LINES, MS, ROOM, UPDATED, committed, created, done

ORIGIN = 2**32 - 5 * FRAME_TICKS
"""The stream's clock wraps early."""

STEP = 20

Event = dict[str, object]


def loudness(payload: bytes) -> bytes:
    return b"\1\1" if payload == b"loud" else b"\0\0"


class Call:
    """One call, 20 ms by 20 ms. The server's frame k leaves at k * 20 ms and arrives 1 ms later, if `way` says so: it gives the
    delay of a frame in ms, or None for one that is lost."""

    def __init__(
        self,
        plan: UserPlan,
        *,
        frames: int = 50,
        way: Callable[[int], int | None] = lambda k: 1,
        seed: int = 1,
    ) -> None:
        rng = random.Random(seed)
        self.user = RtcClient(0, plan, LINES, ROOM, ResponseIds(), rng, 0, loudness)
        self.sent: list[tuple[int, Event]] = []
        self.playback = plan.playback
        self.frames = frames
        self.left = 0
        """Loud frames that have not left."""
        self.answers = 0
        self.epoch = 0
        self.k = 0
        self._way = way
        self._stops_at = -1
        self._playing = ""
        self._under_way: list[tuple[int, int, bytes]] = []
        self.user.start()
        self.say(UPDATED)

    @property
    def now(self) -> int:
        return self.k * STEP * MS

    def say(self, *events: Event) -> None:
        for event in events:
            self._note(self.user.receive(decode(encode(event)), self.now))

    def run(self, until: Callable[[], bool], seconds: float = 30.0) -> None:
        """Until something is so; not for longer than `seconds`."""
        last = self.k + int(seconds * 50)
        while not until():
            assert self.k < last, "it never came"
            self.step()

    def step(self) -> None:
        self.k += 1
        self._arrive()
        messages, _ = self.user.tick(self.now)
        self._note(messages)
        if self.user.user.state is State.WAITING and not self._playing:
            self.answer()
        self._send()

    def answer(self) -> None:
        """All of it is made at once, as a fast engine does."""
        self.answers += 1
        name = self._playing = f"r{self.answers}"
        self.left = self.frames
        part = {"response_id": name, "item_id": f"i{name}", "content_index": 0}
        self.say(
            committed(f"u{self.answers}"),
            created(name),
            {"type": "response.content_part.added", **part, "part": {"type": "audio"}},
        )
        if self.playback:
            self.play()
        self.say(done(name))

    def play(self) -> None:
        begin = (ORIGIN + (self.k + 1) * FRAME_TICKS) % 2**32
        self.say(
            {
                "type": "playback.play",
                "response_id": self._playing,
                "epoch": self.epoch,
                "rtp_timestamp": begin,
            }
        )

    def mute(self, *, reversible: bool) -> None:
        self.epoch += not reversible
        self.left = self.left if reversible else 0
        self.say(
            {
                "type": "playback.mute",
                "response_id": self._playing,
                "epoch": self.epoch,
                "reversible": reversible,
            }
        )

    def clear(self) -> None:
        self.left = 0
        name, self._playing = self._playing, ""
        self.say({"type": "output_audio_buffer.cleared", "response_id": name})

    def of(self, kind: str) -> list[tuple[int, Event]]:
        return [(ms, event) for ms, event in self.sent if event["type"] == kind]

    def _send(self) -> None:
        """Frame k + 1 leaves, behind the tick k."""
        loud = self.left > 0
        if loud:
            if self.left == self.frames:
                self.say({"type": "output_audio_buffer.started", "response_id": self._playing})
            self.left -= 1
            if not self.left:
                self._stops_at = self.k + 6
        elif self._playing and self.k == self._stops_at:
            name, self._playing = self._playing, ""
            self.say({"type": "output_audio_buffer.stopped", "response_id": name})
        delay = self._way(self.k + 1)
        if delay is not None:
            at = (self.k * STEP + delay) * MS
            self._under_way.append((at, self.k + 1, b"loud" if loud else b"quiet"))

    def _arrive(self) -> None:
        for packet in sorted(self._under_way):
            at, k, payload = packet
            if at <= self.now:
                self._under_way.remove(packet)
                self.user.packet((ORIGIN + k * FRAME_TICKS) % 2**32, payload, at)

    def _note(self, messages: list[str]) -> None:
        self.sent += [(self.k * STEP, json.loads(message)) for message in messages]
