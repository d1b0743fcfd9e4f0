"""From what simulated users saw to the figures of a report, with the keys of a load run's report.

Definitions and censoring are those of the load generator: `ttfa_ms` is last voiced instant -> first audible sample,
`response_ms` the decided end of turn -> first audible sample. Turns that end their speech before the warm-up are out.
A turn still waiting at the end, or whose answer failed before it sounded, counts as a failed wait (an infinite one)
in `slo`; one that has waited less than the objective when the run ends is out. Percentiles interpolate linearly.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from session_server.media import NS_PER_MS, OUTPUT_RATE, samples_to_ms
from session_server.runtime.simulation.records import BargeIn, Records, Turn

LEAST_EVENTS = 10
SLO_P90_MS, SLO_P99_MS, SLO_C100 = 500.0, 2000.0, 0.99
SATISFIED = ("played", "interrupted")


def percentile(values: Sequence[float], share: float) -> float:
    """Linear between the two nearest ranks; `values` must not be empty."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    if ordered[low] == ordered[high]:
        return ordered[low]
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(values_ms: Sequence[float], shares: Sequence[int] = (50, 90, 95, 99)) -> dict[str, Any]:
    """Count and percentiles in milliseconds; null without a value, or for a wait without end."""
    figures: dict[str, Any] = {"count": len(values_ms)}
    for share in shares:
        value = percentile(values_ms, share / 100) if values_ms else math.nan
        figures[f"p{share}"] = round(value, 1) if math.isfinite(value) else None
    return figures


def share_of(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole >= LEAST_EVENTS else None


def measure(records: Sequence[Records], warm_up_ns: int, end_ns: int) -> dict[str, Any]:
    """Every figure that the users' records give."""
    turns = [t for r in records for t in r.turns if warm_up_ns <= t.u1 <= end_ns]
    ended = [t for t in turns if t.ended and t.ended != "left"]
    seconds = (end_ns - warm_up_ns) / 1e9
    counts: Counter[str] = sum((r.counts for r in records), Counter())
    failures: Counter[str] = sum((r.failures for r in records), Counter())
    made_ms = counts.get("audio_ms:generated", 0)
    wasted_ms = sum(r.wasted_samples for r in records) * 1000 // OUTPUT_RATE
    return {
        "turns": len(ended),
        "turns_ended": dict(sorted(Counter(t.ended for t in ended).items())),
        "seconds": round(seconds, 3),
        **_first_audio(turns),
        **_continuity(turns),
        **_goodput(ended, seconds),
        "slo": slo(turns, end_ns),
        "responses_per_s": round(sum(t.ended in SATISFIED for t in ended) / seconds, 4),
        "wasted_audio_ratio": round(wasted_ms / made_ms, 4) if made_ms else None,
        "wasted_audio_origin": "simulation",
        "generated_audio_s": round(made_ms / 1000, 1),
        "received_audio_s": round(sum(r.received_samples for r in records) / OUTPUT_RATE, 1),
        "barge_in": _barge_ins([b for r in records for b in r.barge_ins], records),
        "backchannels": {
            "count": sum(r.backchannels for r in records),
            "cut": sum(r.backchannels_cut for r in records),
            "ducked": sum(r.ducked for r in records),
        },
        "sessions_opened": sum(r.sessions_opened for r in records),
        "sessions_refused": sum(r.sessions_refused for r in records),
        "errors": sum(failures.values()),
        "error_kinds": dict(sorted(failures.items())),
        "leaks": 0,
        "counts": dict(sorted(counts.items())),
    }


def _ms(ns: int) -> float:
    return ns / NS_PER_MS


def _first_audio(turns: Iterable[Turn]) -> dict[str, Any]:
    heard = [(t, t.first_audible) for t in turns if t.first_audible is not None]
    decided = [(t, at, t.decided) for t, at in heard if t.decided is not None]
    return {
        "ttfa_ms": spread([_ms(at - t.u1) for t, at in heard]),
        "ttfa_after_barge_in_ms": spread([_ms(at - t.u1) for t, at in heard if t.interrupting]),
        "response_ms": spread([_ms(at - d) for _, at, d in decided]),
        "endpoint_ms": spread([_ms(d - t.u1) for t, _, d in decided]),
    }


def waits_ms(turns: Iterable[Turn], end_ns: int, objective_ms: float) -> list[float]:
    """From the decided end of turn to first audio; infinite where there was none and should have been."""
    waits = []
    for turn in turns:
        if turn.decided is None or turn.ended in ("left", "empty"):
            continue
        if turn.first_audible is not None and turn.first_audible <= end_ns:
            waits.append(_ms(turn.first_audible - turn.decided))
        elif turn.ended or _ms(end_ns - turn.decided) > objective_ms:
            waits.append(math.inf)
    return waits


def slo(turns: Sequence[Turn], end_ns: int) -> dict[str, Any]:
    """The service level of "sessions at SLO": P90 <= 500 ms, P99 <= 2 s, C100 >= 0.99, failed waits counted."""
    waits = waits_ms(turns, end_ns, SLO_P90_MS)
    c100 = _share_within(turns, 100)
    p90 = percentile(waits, 0.9) if waits else math.inf
    p99 = percentile(waits, 0.99) if waits else math.inf
    held = p90 <= SLO_P90_MS and p99 <= SLO_P99_MS and (c100 or 0.0) >= SLO_C100
    return {
        **spread(waits),
        "c100": c100,
        "held": held,
        "failed_waits": sum(math.isinf(w) for w in waits),
        "starved": sum(w > SLO_P99_MS for w in waits),
    }


def _worst_ms(turn: Turn) -> int:
    return samples_to_ms(max(turn.gaps, default=0), OUTPUT_RATE)


def _share_within(turns: Iterable[Turn], bar_ms: int) -> float | None:
    heard = [t for t in turns if t.played]
    return share_of(sum(_worst_ms(t) <= bar_ms for t in heard), len(heard))


def _continuity(turns: Sequence[Turn]) -> dict[str, Any]:
    gaps = [gap for turn in turns for gap in turn.gaps]
    return {
        "responses": sum(bool(t.played) for t in turns),
        "underruns": len(gaps),
        "underrun_ms": samples_to_ms(sum(gaps), OUTPUT_RATE),
        **{f"c{bar}": _share_within(turns, bar) for bar in (50, 100, 200)},
    }


def _goodput(turns: Iterable[Turn], seconds: float) -> dict[str, Any]:
    fair = [
        (_ms(t.first_audible - t.u1), t)
        for t in turns
        if t.first_audible is not None and t.ended in SATISFIED and _worst_ms(t) <= 100
    ]
    rates = {
        f"ttfa_{bar}_ms": round(sum(ms <= bar for ms, _ in fair) / seconds, 4)
        for bar in (500, 1000, 1500)
    }
    in_time = sum(
        _ms(t.first_audible - t.decided) <= SLO_P90_MS
        for _, t in fair
        if t.decided is not None and t.first_audible is not None
    )
    return {
        "goodput_per_s": rates["ttfa_1000_ms"],
        "goodput": {**rates, "response_500_ms": round(in_time / seconds, 4)},
    }


def _barge_ins(said: Sequence[BargeIn], records: Sequence[Records]) -> dict[str, Any]:
    stopped = [b for b in said if b.fence is not None]
    return {
        "count": len(said),
        "stopped": len(stopped),
        "stop_ms": spread([_ms(max(0, (b.silent or b.onset) - b.onset)) for b in stopped], (50, 90, 95)),
        "onset_to_fence_ms": spread([_ms((b.fence or b.onset) - b.onset) for b in stopped], (50, 95)),
        "stale_samples": sum(r.stale_samples for r in records),
    }  # fmt: skip
