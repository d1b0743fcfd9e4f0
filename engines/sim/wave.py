"""The waveform that the simulated vocoder speaks, and the check that finds every sample lost or repeated.

Each sample's value is a hash of who speaks (`wave_seed`: response and clause) and of the sample's index
in the clause, so that any eight samples in a row say where they belong. The last frame of a clause is
marked (another hash), so that a clause whose end is missing is noticed too. It sounds like noise at -12 dBFS,
which is meant: these engines simulate, they do not speak.

Only for s16le at the engine's own rate: resampling or companding destroys the code.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

_AMPLITUDE_BITS = 14
_END_MARK = 0x5BD1E995
_RUN = 8
_WINDOW = 1 << 17
_MAX_FAULTS = 32

Samples = npt.NDArray[np.int16]


def wave_seed(work: str, part: int) -> int:
    """Seed of the clause `part` of response `work`."""
    return zlib.crc32(f"{work}/{part}".encode())


def samples(seed: int, start: int, n: int, *, ending: bool = False) -> Samples:
    """Samples start..start+n of a clause; `ending`: as they are inside its last frame."""
    with np.errstate(over="ignore"):
        x = np.arange(start, start + n, dtype=np.int64).astype(np.uint32)
        x = x * np.uint32(0x9E3779B1) + np.uint32(
            (seed ^ (_END_MARK if ending else 0)) & 0xFFFFFFFF
        )
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            x ^= x >> np.uint32(shift)
            x *= np.uint32(factor)
        x ^= x >> np.uint32(16)
    x &= np.uint32((1 << _AMPLITUDE_BITS) - 1)
    return (x.astype(np.int32) - (1 << (_AMPLITUDE_BITS - 1))).astype(np.int16)


def clause_samples(seed: int, start: int, n: int, total: int, hop: int) -> Samples:
    """Samples start..start+n of a clause of `total` samples in frames of `hop`, its end marked."""
    border = max(0, total - hop)
    plain = max(0, min(n, border - start))
    head = samples(seed, start, plain)
    tail = samples(seed, start + plain, n - plain, ending=True)
    return np.concatenate([head, tail])


def expected_pcm(seed: int, start: int, n: int, total: int | None = None, hop: int = 300) -> bytes:
    """`clause_samples` as s16le; without `total`, none of them in the last frame."""
    wave = samples(seed, start, n) if total is None else clause_samples(seed, start, n, total, hop)
    return wave.astype("<i2").tobytes()


@dataclass(frozen=True, slots=True)
class WaveFault:
    """At sample `at` of the stream something is wrong.

    `kind`: missing or repeated (`count` samples), moved (goes on in another clause than the next), cut
    (a clause ends without its last frame), foreign (not this response's audio, or damaged).
    """

    at: int
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class WaveReport:
    """What `verify` found. `clauses` ended properly; `complete`: the stream stops exactly at such an end."""

    samples: int
    clauses: int
    complete: bool
    faults: tuple[WaveFault, ...] = ()

    @property
    def intact(self) -> bool:
        """Nothing missing, repeated or foreign up to where the stream stops (a barge-in may stop it anywhere)."""
        return not self.faults


@dataclass(slots=True)
class _Cursor:
    """The next sample is number `at` of clause `part`, in its last frame if `ending`."""

    part: int = 0
    at: int = 0
    ending: bool = False
    clauses: int = 0
    faults: list[WaveFault] = field(default_factory=list)


def verify(pcm: bytes, work: str, hop: int = 300) -> WaveReport:
    """Check the audio of response `work` from its first sample on."""
    heard = np.frombuffer(pcm[: len(pcm) // 2 * 2], "<i2")
    cursor = _Cursor()
    if len(pcm) % 2:
        cursor.faults.append(WaveFault(len(heard), "foreign", 1))
    position = 0
    while position < len(heard) and len(cursor.faults) < _MAX_FAULTS:
        matched = _follow(heard[position:], work, hop, cursor)
        position += matched
        if position < len(heard) and not _border(heard[position:], work, hop, cursor):
            position += _resume(heard[position:], position, work, cursor)
    complete = cursor.clauses > 0 and cursor.at == 0 and not cursor.faults
    return WaveReport(len(heard), cursor.clauses, complete, tuple(cursor.faults))


def _follow(heard: Samples, work: str, hop: int, cursor: _Cursor) -> int:
    """Advance over the samples that are as expected; how many."""
    n = len(heard)
    if cursor.ending:
        n = min(n, hop - cursor.at % hop)
    want = samples(wave_seed(work, cursor.part), cursor.at, n, ending=cursor.ending)
    wrong = np.nonzero(heard[:n] != want)[0]
    matched = int(wrong[0]) if len(wrong) else n
    if not cursor.ending:
        matched -= _overrun(heard, matched, work, hop, cursor)
    cursor.at += matched
    if cursor.ending and cursor.at % hop == 0 and matched:
        cursor.part += 1
        cursor.clauses += 1
        cursor.at = 0
        cursor.ending = False
    return matched


def _overrun(heard: Samples, matched: int, work: str, hop: int, cursor: _Cursor) -> int:
    """Samples by which the match ran into the last frame: the first of that frame have the same value under both
    hashes once in 2**14 clauses. 0 where no last frame begins at the border before."""
    over = (cursor.at + matched) % hop
    if matched == len(heard) or not 0 < over < min(_RUN, matched + 1):
        return 0
    begins = matched - over
    seen = heard[begins : begins + _RUN]
    last = samples(wave_seed(work, cursor.part), cursor.at + begins, len(seen), ending=True)
    return over if np.array_equal(seen, last) else 0


def _border(heard: Samples, work: str, hop: int, cursor: _Cursor) -> bool:
    """Whether the stream goes on lawfully: in a clause's last frame, or with the next clause."""
    if not cursor.ending and cursor.at % hop == 0:
        seed = wave_seed(work, cursor.part)
        n = min(_RUN, len(heard))
        if np.array_equal(heard[:n], samples(seed, cursor.at, n, ending=True)):
            cursor.ending = True
            return True
    return cursor.at == 0 and _matches(heard, work, cursor.part, 0, False)


def _matches(heard: Samples, work: str, part: int, at: int, ending: bool) -> bool:
    n = min(_RUN, len(heard))
    return np.array_equal(heard[:n], samples(wave_seed(work, part), at, n, ending=ending))


def _resume(heard: Samples, position: int, work: str, cursor: _Cursor) -> int:
    """Note a fault and find where the stream goes on; the number of samples to skip."""
    was_part, was_at = cursor.part, cursor.at
    for part in (was_part, was_part + 1, was_part + 2, *range(max(0, was_part - 2), was_part)):
        low = max(0, was_at - _WINDOW) if part == was_part else 0
        for ending in (False, True):
            found = _search(heard, wave_seed(work, part), low, low + 2 * _WINDOW, ending)
            if found is None:
                continue
            cursor.part, cursor.at, cursor.ending = part, found, ending
            if part == was_part:
                kind = "missing" if found > was_at else "repeated"
                cursor.faults.append(WaveFault(position, kind, abs(found - was_at)))
            else:
                cut = was_at > 0 and (part, found) == (was_part + 1, 0)
                kind = "cut" if cut else "moved"
                cursor.faults.append(WaveFault(position, kind, found))
            return 0
    cursor.faults.append(WaveFault(position, "foreign", 1))
    cursor.at += 1
    return 1


def _search(heard: Samples, seed: int, low: int, high: int, ending: bool) -> int | None:
    """Index in low..high from which the clause reads like `heard` (its first samples)."""
    n = min(_RUN, len(heard))
    if n < _RUN:
        return None
    wave = samples(seed, low, high - low, ending=ending)
    for at in np.nonzero(wave[: len(wave) - n] == heard[0])[0]:
        if np.array_equal(wave[at : at + n], heard[:n]):
            return low + int(at)
    return None
