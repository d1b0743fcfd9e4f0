"""From what users saw to the figures of a report.

Definitions (the load generator's page repeats them). Times are the client's clock (`measurement_origin` client_clock).

* `ttfa_ms`: end of the user's last voiced sample -> first audible sample left the player.
* `response_ms`: receipt of `input_audio_buffer.committed` -> first audible sample. `endpoint_ms`: last voiced
  sample -> that receipt. Turns that the server answered before the user had finished are counted in
  `answered_early` and are in neither.
* `c100`: share of answers that played a sample whose worst gap is at most 100 ms.
* `goodput_per_s`: answers per second with ttfa <= 1 s and C100 that were heard to the end or interrupted by the user.
* `barge_in.stop_ms`: onset of the user's speech -> last audible sample of the old answer left the player.

Percentiles interpolate linearly; each has its `count`. Shares of fewer than 10 events are null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from loadgen.records import Backchannel, BargeIn, Turn, UserRecord
from loadgen.words import recognition
from session_server.media import NS_PER_MS, NS_PER_S, OUTPUT_RATE, samples_to_ms

LEAST_EVENTS = 10
GOODPUT_BARS_MS = (500, 1000, 1500)
SATISFIED = ("played", "interrupted")


def percentile(values: Sequence[float], share: float) -> float:
    """Linear between the two nearest ranks; `values` must not be empty."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(values_ns: Iterable[int], shares: Sequence[int] = (50, 90, 95, 99)) -> dict[str, Any]:
    """Count and percentiles in milliseconds, rounded to 0.1; null without a value."""
    ms = [value / NS_PER_MS for value in values_ns]
    figures: dict[str, Any] = {"count": len(ms)}
    for share in shares:
        figures[f"p{share}"] = round(percentile(ms, share / 100), 1) if ms else None
    return figures


def share_of(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole >= LEAST_EVENTS else None


def measure(records: Sequence[UserRecord], seconds: float) -> dict[str, Any]:
    """Every figure that the users' records give."""
    turns = [turn for record in records for turn in record.turns if turn.ended]
    errors: Counter[str] = sum((record.errors for record in records), Counter())
    received = sum(record.received_samples for record in records)
    played = sum(record.played_samples for record in records)
    return {
        "turns": len(turns),
        "turns_ended": dict(sorted(Counter(turn.ended for turn in turns).items())),
        "seconds": round(seconds, 3),
        **_first_audio(turns),
        **_continuity(turns),
        **_goodput(turns, seconds),
        "wasted_audio_ratio": round((received - played) / received, 4) if received else None,
        "wasted_audio_origin": "client_received",
        "received_audio_s": round(received / OUTPUT_RATE, 3),
        "barge_in": _barge_ins(records),
        "backchannels": _backchannels([b for record in records for b in record.backchannels]),
        "recognition": recognition(turns),
        "leaks": sum(record.leaks for record in records),
        "errors": sum(errors.values()),
        "error_kinds": dict(sorted(errors.items())),
    }


def _timely(turns: Iterable[Turn]) -> list[tuple[Turn, int]]:
    """Turns with a first audible sample after the user had finished, and that instant."""
    return [
        (turn, turn.first_audible)
        for turn in turns
        if turn.first_audible is not None and turn.first_audible >= turn.u1
    ]


def _first_audio(turns: list[Turn]) -> dict[str, Any]:
    timely = _timely(turns)
    audible = sum(turn.first_audible is not None for turn in turns)
    decided = [(t, at, t.decided) for t, at in timely if t.decided and t.u1 <= t.decided]
    return {
        "ttfa_ms": spread(at - turn.u1 for turn, at in timely),
        "ttfa_after_barge_in_ms": spread(at - turn.u1 for turn, at in timely if turn.interrupting),
        "response_ms": spread(at - decided for _, at, decided in decided if at >= decided),
        "endpoint_ms": spread(decided - turn.u1 for turn, _, decided in decided),
        "answered_early": audible - len(timely),
        "early_responses": sum(turn.early_responses for turn in turns),
    }


def _worst_ms(turn: Turn) -> int:
    return samples_to_ms(max(turn.gaps, default=0), OUTPUT_RATE)


def _continuity(turns: list[Turn]) -> dict[str, Any]:
    heard = [turn for turn in turns if turn.played]
    gaps = [gap for turn in turns for gap in turn.gaps]
    figures: dict[str, Any] = {
        "responses": len(heard),
        "underruns": len(gaps),
        "underrun_ms": samples_to_ms(sum(gaps), OUTPUT_RATE),
    }
    for bar in (50, 100, 200):
        within = sum(_worst_ms(turn) <= bar for turn in heard)
        figures[f"c{bar}"] = share_of(within, len(heard))
    return figures


def _goodput(turns: list[Turn], seconds: float) -> dict[str, Any]:
    rates = {}
    for bar in GOODPUT_BARS_MS:
        good = sum(
            at - turn.u1 <= bar * NS_PER_MS and _worst_ms(turn) <= 100 and turn.ended in SATISFIED
            for turn, at in _timely(turns)
        )
        rates[f"ttfa_{bar}_ms"] = round(good / seconds, 4) if seconds > 0 else None
    return {"goodput_per_s": rates["ttfa_1000_ms"], "goodput": rates}


def _barge_ins(records: Sequence[UserRecord]) -> dict[str, Any]:
    all_of_them = [b for record in records for b in record.barge_ins]
    stopped = [b for b in all_of_them if b.fence is not None and b.fence >= b.onset]
    fences = [(b, b.fence) for b in stopped if b.fence is not None]
    ducks = [b.duck - b.onset for b in all_of_them if b.duck is not None]
    return {
        "count": len(all_of_them),
        "missed": sum(record.missed_barge_ins for record in records),
        "stopped": len(stopped),
        "answer_ended": sum(b.answer_ended for b in all_of_them),
        "ignored": sum(b.fence is None and not b.answer_ended for b in all_of_them),
        "stop_ms": spread(_stops(stopped), (50, 90, 95)),
        "onset_to_duck_ms": spread(ducks, (50, 95)),
        "onset_to_fence_ms": spread((f - b.onset for b, f in fences), (50, 95)),
        "fence_to_last_byte_ms": spread((max(0, (b.last_byte or 0) - f) for b, f in fences), (50, 95)),
        "fences": dict(sorted(Counter(b.fence_event for b in stopped).items())),
        "stale_chunks": sum(record.stale_chunks for record in records),
        "stale_samples": sum(record.stale_samples for record in records),
    }  # fmt: skip


def _stops(stopped: Iterable[BargeIn]) -> list[int]:
    """A listener who had run dry, or was ducked, before the onset heard nothing more: 0."""
    return [max(0, b.silent - b.onset) for b in stopped if b.silent is not None]


def _backchannels(said: Sequence[Backchannel]) -> dict[str, Any]:
    cut = sum(b.cut for b in said)
    return {
        "count": len(said),
        "cut": cut,
        "ducked": sum(b.ducked for b in said),
        "survived_share": share_of(len(said) - cut, len(said)),
    }


def duration_s(records: Sequence[UserRecord]) -> float:
    """From the first word of the first user to the end of the last turn."""
    begun = [turn.u0 for record in records for turn in record.turns]
    ended = [turn.end for record in records for turn in record.turns if turn.end is not None]
    return max(0.0, (max(ended) - min(begun)) / NS_PER_S) if begun and ended else 0.0
