"""The input time line's bytes: what the core names by position, this keeps.

Owns three buffers of one session: 16 kHz samples (for recognition), the client's own PCM (for
`retrieve`, which gives short audio back exactly as it was appended), and recordings that came
inside items. Owns also the audio history: what the user said in the turns so far, for the prompts
of a thinker that hears.

All are bounded: beyond `max_samples` the oldest audio goes, and a range that reaches back further
is silently shortened to what is left. When the history is more than MAX_BYTES the oldest sounds go,
at once as many as make half of it free, so that the prompts of a long conversation keep a common
beginning, which the engine need not read again. A sound alone above the bound is not kept.

Units: positions are absolute samples at INPUT_RATE since the session began.
"""

from __future__ import annotations

from collections import deque

from session_server.types.audio import INPUT_RATE

MAX_BYTES = 8 * 1024 * 1024
"""Of one session: a little over four minutes of speech at INPUT_RATE."""

Part = tuple[str, int]
"""An item's id, and which part of it."""


class KeptSounds:
    """Sounds by their part, in the order in which they came."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max = max_bytes
        self._sounds: dict[Part, bytes] = {}
        self._bytes = 0

    def keep(self, part: Part, pcm: bytes) -> None:
        self._drop(part)
        if not pcm or len(pcm) > self._max:
            return
        if self._bytes + len(pcm) > self._max:
            while self._sounds and self._bytes + len(pcm) > self._max // 2:
                self._drop(next(iter(self._sounds)))
        self._sounds[part] = pcm
        self._bytes += len(pcm)

    def get(self, part: Part) -> bytes:
        """Empty when it is not there (any more)."""
        return self._sounds.get(part, b"")

    def _drop(self, part: Part) -> None:
        self._bytes -= len(self._sounds.pop(part, b""))


MAX_INLINE_BYTES = 16 * 1024 * 1024
"""Inline recordings that may wait for their recognition at a time: almost nine minutes; the oldest go first."""


class TimeLine:
    """Bytes at absolute positions: append at the end, forget from the front, read any range between.

    `unit` bytes make one sample; `rate` is that of the samples.
    """

    def __init__(self, rate: int, unit: int, max_samples: int) -> None:
        self._rate = rate
        self._unit = unit
        self._max = max_samples
        self._blocks: deque[tuple[int, bytes]] = deque()
        self.begin = 0
        self.end = 0

    def append(self, data: bytes) -> None:
        """`data` is whole samples that follow the last ones."""
        if not data:
            return
        self._blocks.append((self.end, data))
        self.end += len(data) // self._unit
        if self.end - self.begin > self._max:
            self.forget(self.end - self._max)

    def forget(self, before: int) -> None:
        """Samples before this position are not needed any more; whole blocks are given up."""
        self.begin = max(self.begin, min(before, self.end))
        while self._blocks and self._blocks[0][0] + len(self._blocks[0][1]) // self._unit <= before:
            self._blocks.popleft()

    def read(self, start: int, stop: int) -> bytes:
        """The samples of `start..stop`, as far as they are still (or already) there."""
        parts = []
        for position, data in self._blocks:
            length = len(data) // self._unit
            first, last = max(start - position, 0), min(stop - position, length)
            if first < last:
                parts.append(data[first * self._unit : last * self._unit])
        return b"".join(parts)


class InputTimeline:
    """Both time lines of a session, addressed in samples at INPUT_RATE."""

    def __init__(self, client_rate: int, max_ms: int) -> None:
        self._max_ms = max_ms
        self._offset = 0
        self._inline: dict[tuple[str, int], bytes] = {}
        self._inline_bytes = 0
        self._said = KeptSounds()
        self._client_rate = client_rate
        self._ears = TimeLine(INPUT_RATE, 2, max_ms * INPUT_RATE // 1000)
        self._raw = TimeLine(client_rate, 2, max_ms * client_rate // 1000)

    @property
    def heard_end(self) -> int:
        """Where the resampled audio ends: a few milliseconds behind what was appended."""
        return self._ears.end

    @property
    def appended_end(self) -> int:
        """Where all audio ever appended ends, at INPUT_RATE."""
        return self._offset + self._raw.end * INPUT_RATE // self._client_rate

    def keep_inline(self, item_id: str, index: int, heard_pcm: bytes) -> None:
        """Audio that came inside an item, s16le at INPUT_RATE, until it is recognised."""
        self.take_inline(item_id, index)
        self._inline[item_id, index] = heard_pcm
        self._inline_bytes += len(heard_pcm)
        while self._inline_bytes > MAX_INLINE_BYTES:
            self.take_inline(*next(iter(self._inline)))

    def take_inline(self, item_id: str, index: int) -> bytes:
        """That audio, once; empty when it is not there any more."""
        sound = self._inline.pop((item_id, index), b"")
        self._inline_bytes -= len(sound)
        return sound

    def keep(self, item_id: str, index: int, heard_pcm: bytes) -> None:
        """What the user said in an item, s16le at INPUT_RATE, for prompts of a thinker that hears."""
        self._said.keep((item_id, index), heard_pcm)

    def kept(self, item_id: str, index: int) -> bytes:
        """That sound; empty when it had to give way to newer ones."""
        return self._said.get((item_id, index))

    def append(self, raw_pcm: bytes, heard_pcm: bytes) -> None:
        """One append: s16le at the client's rate, and the same resampled to INPUT_RATE."""
        self._raw.append(raw_pcm)
        self._ears.append(heard_pcm)

    def change_rate(self, client_rate: int) -> None:
        """The client changed its input format; earlier raw audio can no longer be given back."""
        if client_rate == self._client_rate:
            return
        self._offset = self.appended_end
        self._client_rate = client_rate
        self._raw = TimeLine(client_rate, 2, self._max_ms * client_rate // 1000)

    def forget(self, before: int) -> None:
        self._ears.forget(before)
        self._raw.forget((before - self._offset) * self._client_rate // INPUT_RATE)

    def heard(self, start: int, stop: int) -> bytes:
        """s16le at INPUT_RATE."""
        return self._ears.read(start, stop)

    def raw(self, start: int, stop: int) -> bytes:
        """s16le at the client's rate: exactly what was appended. Ranges that meet lose and share no sample."""
        return self._raw.read(self._raw_position(start), self._raw_position(stop))

    def _raw_position(self, at: int) -> int:
        """The client's sample at a position, rounded up: where an append ends at `at`, it is in."""
        return max(0, -((at - self._offset) * -self._client_rate // INPUT_RATE))
