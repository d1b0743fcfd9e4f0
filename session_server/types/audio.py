"""Values of audio and playback that every layer shares, and the base of values; no behaviour beyond arithmetic.

Units: positions and lengths are integer samples of the stream that is named; PCM is signed
16-bit little-endian mono bytes unless a docstring says otherwise.
"""

from __future__ import annotations

import enum

import msgspec

INPUT_RATE = 16_000
"""Rate (Hz) of the session's input time line: what VAD, ASR and turn model read."""

OUTPUT_RATE = 24_000
"""Rate (Hz) of PCM on the wire, and of the default talker."""

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


class Value(msgspec.Struct, frozen=True, gc=False):
    """Base of events, actions and messages: immutable, compared by what they hold. Making one costs a tenth of what a
    frozen data class does, and there are hundreds for each second of speech. They never form cycles."""


class AudioFormat(enum.Enum):
    """How audio travels on this connection; mono. Value: the name on the wire."""

    PCM = "audio/pcm"
    PCMU = "audio/pcmu"
    PCMA = "audio/pcma"

    @property
    def rate(self) -> int:
        """Samples per second."""
        return 24_000 if self is AudioFormat.PCM else 8_000

    @property
    def sample_bytes(self) -> int:
        return 2 if self is AudioFormat.PCM else 1


class PlaybackSnapshot(Value, frozen=True):
    """How far one response got, in samples of its output stream: generated >= sent >= played."""

    generated: int
    sent: int
    played: int
    rate: int

    @property
    def lead_s(self) -> float:
        """Seconds generated and not yet played."""
        return (self.generated - self.played) / self.rate


class PlaybackLimits(Value, frozen=True):
    """Limits of the opt-in playback extension (protocol page, 8.2)."""

    ack_interval_ms: int = 200
    max_lead_ms: int = 1000
    settle_ms: int = 500


class WordSpan(Value, frozen=True):
    """When one word of a response sounds.

    `char_start`, `char_end` index the response's text (all text deltas concatenated);
    `start_sample`, `end_sample` index its output audio.
    """

    char_start: int
    char_end: int
    start_sample: int
    end_sample: int


def samples_to_ms(samples: int, rate: int) -> int:
    """Whole milliseconds in `samples`, rounded down."""
    return samples * 1000 // rate


def ms_to_samples(ms: int, rate: int) -> int:
    """Samples in `ms` milliseconds, rounded down."""
    return ms * rate // 1000


def samples_to_ns(samples: int, rate: int) -> int:
    """Nanoseconds that `samples` last, rounded down."""
    return samples * NS_PER_S // rate
