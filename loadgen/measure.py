"""How well the server understood: word errors of transcripts against what the user said.

From what users saw to the figures of a report; the same for a real run and a simulated one.

Definitions (the load generator's page repeats them). Times are the client's clock (`measurement_origin` client_clock), or
in a simulation the one clock of all.

* `ttfa_ms`: end of the user's last voiced sample -> first audible sample left the player.
* `response_ms`: the decided end of turn (receipt of `input_audio_buffer.committed`; in a simulation the server's own instant)
  -> first audible sample. `endpoint_ms`: last voiced sample -> the same. Turns that the server answered before the user had
  finished are counted in `answered_early` and are in neither.
* `slo`: of the wait from the decided end of turn to first audio. A wait that ended without sound, or that had lasted longer than
  the objective when the run ended, is an infinite one; one that had not is left out.
* `c100`: share of answers that played a sample whose worst gap is at most 100 ms.
* `goodput_per_s`: answers per second with ttfa <= 1 s and C100 that were heard to the end or interrupted by the user.
* `barge_in.stop_ms`: onset of the user's speech -> last audible sample of the old answer left the player.

Percentiles interpolate linearly; each has its `count`; null: nothing to count, or an infinite wait. Shares of fewer than 10
events are null.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from loadgen.records import Backchannel, BargeIn, FalseStart, Turn, UserRecord
from session_server.types.audio import NS_PER_MS, NS_PER_S, OUTPUT_RATE, samples_to_ms


def normalised(text: str) -> list[str]:
    """Lower-case words without punctuation."""
    return re.sub(r"[^a-z0-9 ]", " ", text.lower().replace("'", "").replace("-", " ")).split()


def word_errors(said: str, heard: str) -> tuple[int, int]:
    """(edit distance in words, words said)."""
    reference, hypothesis = normalised(said), normalised(heard)
    row = list(range(len(hypothesis) + 1))
    for i, word in enumerate(reference, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(hypothesis, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1], len(reference)


def recognition(turns: Iterable[Turn]) -> dict[str, Any]:
    """Over turns whose text is known and that got a transcript; `empty` counts blank transcripts."""
    errors = words = judged = empty = 0
    for turn in turns:
        if not turn.transcripts:
            continue
        heard = " ".join(turn.transcripts)
        empty += not heard.strip()
        if turn.text is None:
            continue
        wrong, said = word_errors(turn.text, heard)
        errors += wrong
        words += said
        judged += 1
    return {
        "turns": judged,
        "words": words,
        "word_errors": errors,
        "wer": round(errors / words, 4) if words else None,
        "empty": empty,
    }


LEAST_EVENTS = 10
GOODPUT_BARS_MS = (500, 1000, 1500)
SLO_P90_MS, SLO_P99_MS, SLO_C100 = 500.0, 2000.0, 0.99
SATISFIED = ("played", "interrupted")


def percentile(values: Sequence[float], share: float) -> float:
    """Linear between the two nearest ranks; `values` must not be empty."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    if ordered[low] == ordered[high]:  # both may be infinite
        return ordered[low]
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(values_ns: Iterable[float], shares: Sequence[int] = (50, 90, 95, 99)) -> dict[str, Any]:
    """Count and percentiles in milliseconds, rounded to 0.1; null without a value, or for a wait without end."""
    return _spread_ms([value / NS_PER_MS for value in values_ns], shares)


def _spread_ms(ms: Sequence[float], shares: Sequence[int] = (50, 90, 95, 99)) -> dict[str, Any]:
    figures: dict[str, Any] = {"count": len(ms)}
    for share in shares:
        value = percentile(ms, share / 100) if ms else math.nan
        figures[f"p{share}"] = round(value, 1) if math.isfinite(value) else None
    return figures


def quantiles(values_ns: Iterable[float], steps: int = 100) -> list[float]:
    """Least, `steps` - 1 between and most, in milliseconds: a distribution in bounded room. Empty without a value."""
    ms = sorted(value / NS_PER_MS for value in values_ns)
    return [round(percentile(ms, step / steps), 1) for step in range(steps + 1)] if ms else []


def share_of(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole >= LEAST_EVENTS else None


def measure(
    records: Sequence[UserRecord], seconds: float, span: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Every figure that the users' records give. `span`: only turns whose speech ends within it, first and last
    instant, and what happened within it; None: all."""
    begin, end = span if span is not None else (0, _last_instant(records))
    turns = [turn for record in records for turn in record.turns if begin <= turn.u1]
    turns = [turn for turn in turns if turn.u1 <= end]
    ended = [turn for turn in turns if turn.ended and turn.ended != "left"]
    errors: Counter[str] = sum((record.errors for record in records), Counter())
    received = sum(record.received_samples for record in records)
    played = sum(record.played_samples for record in records)
    return {
        "turns": len(ended),
        "turns_ended": dict(sorted(Counter(turn.ended for turn in turns if turn.ended).items())),
        "seconds": round(seconds, 3),
        **_first_audio(turns),
        **_continuity(turns),
        **_goodput(ended, seconds),
        "slo": slo(turns, end),
        "wasted_audio_ratio": round((received - played) / received, 4) if received else None,
        "wasted_audio_origin": "client_received",
        "received_audio_s": round(received / OUTPUT_RATE, 3),
        "barge_in": _barge_ins(records, begin),
        "backchannels": _backchannels(
            [b for record in records for b in record.backchannels if b.onset >= begin]
        ),
        "false_starts": _false_starts(
            [f for record in records for f in record.false_starts if f.onset >= begin]
        ),
        "recognition": recognition(turns),
        "sessions_opened": sum(record.sessions_opened for record in records),
        "sessions_refused": sum(record.sessions_refused for record in records),
        "leaks": sum(record.leaks for record in records),
        "errors": sum(errors.values()),
        "error_kinds": dict(sorted(errors.items())),
    }


def _last_instant(records: Sequence[UserRecord]) -> int:
    turns = [turn for record in records for turn in record.turns]
    return max((max(turn.u1, turn.end or 0) for turn in turns), default=0)


def _timely(turns: Iterable[Turn]) -> list[tuple[Turn, int]]:
    """Turns with a first audible sample after the user had finished, and that instant."""
    return [
        (turn, turn.first_audible)
        for turn in turns
        if turn.first_audible is not None and turn.first_audible >= turn.u1
    ]


def _first_audio(turns: Sequence[Turn]) -> dict[str, Any]:
    timely = _timely(turns)
    audible = sum(turn.first_audible is not None for turn in turns)
    decided = [(t, at, t.decided) for t, at in timely if t.decided and t.u1 <= t.decided]
    first_audio = [at - turn.u1 for turn, at in timely]
    responses = [at - decided for _, at, decided in decided if at >= decided]
    return {
        "ttfa_ms": spread(first_audio),
        "ttfa_after_barge_in_ms": spread(at - turn.u1 for turn, at in timely if turn.interrupting),
        "ttfa_quantiles_ms": quantiles(first_audio),
        "response_ms": spread(responses),
        "response_quantiles_ms": quantiles(responses),
        "endpoint_ms": spread(decided - turn.u1 for turn, _, decided in decided),
        "answered_early": audible - len(timely),
        "early_responses": sum(turn.early_responses for turn in turns),
    }


def waits_ms(turns: Iterable[Turn], end_ns: int, objective_ms: float) -> list[float]:
    """From the decided end of turn to first audio; infinite where there was none and should have been."""
    waits = []
    for turn in turns:
        if turn.ended in ("left", "empty"):
            continue
        if turn.decided is None:
            if turn.ended in ("timeout", "failed"):
                waits.append(math.inf)
        elif turn.first_audible is not None and turn.first_audible <= end_ns:
            waits.append(max(0, turn.first_audible - turn.decided) / NS_PER_MS)
        elif turn.ended or (end_ns - turn.decided) / NS_PER_MS > objective_ms:
            waits.append(math.inf)
    return waits


def slo(turns: Sequence[Turn], end_ns: int) -> dict[str, Any]:
    """The service level of "sessions at SLO": P90 <= 500 ms, P99 <= 2 s, C100 >= 0.99, failed waits counted. `held` null:
    too few answers to tell."""
    waits = waits_ms(turns, end_ns, SLO_P90_MS)
    c100 = _share_within(turns, 100)
    p90 = percentile(waits, 0.9) if waits else math.inf
    p99 = percentile(waits, 0.99) if waits else math.inf
    in_time = p90 <= SLO_P90_MS and p99 <= SLO_P99_MS
    known = len(waits) >= LEAST_EVENTS and not (in_time and c100 is None)
    held = in_time and c100 is not None and c100 >= SLO_C100 if known else None
    return {
        **_spread_ms(waits),
        "c100": c100,
        "held": held,
        "failed_waits": sum(math.isinf(wait) for wait in waits),
        "late": sum(wait > SLO_P90_MS for wait in waits),
        "starved": sum(wait > SLO_P99_MS for wait in waits),
        "heard": sum(bool(turn.played) for turn in turns),
        "broken": sum(bool(turn.played) and _worst_ms(turn) > 100 for turn in turns),
    }


def _worst_ms(turn: Turn) -> int:
    return samples_to_ms(max(turn.gaps, default=0), OUTPUT_RATE)


def _share_within(turns: Iterable[Turn], bar_ms: int) -> float | None:
    """Of the answers of which something was played."""
    heard = [turn for turn in turns if turn.played]
    return share_of(sum(_worst_ms(turn) <= bar_ms for turn in heard), len(heard))


def _continuity(turns: Sequence[Turn]) -> dict[str, Any]:
    gaps = [gap for turn in turns for gap in turn.gaps]
    return {
        "responses": sum(bool(turn.played) for turn in turns),
        "underruns": len(gaps),
        "underrun_ms": samples_to_ms(sum(gaps), OUTPUT_RATE),
        **{f"c{bar}": _share_within(turns, bar) for bar in (50, 100, 200)},
    }


def _goodput(turns: Sequence[Turn], seconds: float) -> dict[str, Any]:
    def rate(count: int) -> float | None:
        return round(count / seconds, 4) if seconds > 0 else None

    satisfied = [turn for turn in turns if turn.ended in SATISFIED]
    fair = [(turn, at) for turn, at in _timely(satisfied) if _worst_ms(turn) <= 100]
    rates = {
        f"ttfa_{bar}_ms": rate(sum(at - turn.u1 <= bar * NS_PER_MS for turn, at in fair))
        for bar in GOODPUT_BARS_MS
    }
    in_time = [t for t, at in fair if t.decided and at - t.decided <= SLO_P90_MS * NS_PER_MS]
    return {
        "responses_per_s": rate(len(satisfied)),
        "goodput_per_s": rates["ttfa_1000_ms"],
        "goodput": {**rates, "response_500_ms": rate(len(in_time))},
    }


def _barge_ins(records: Sequence[UserRecord], begin: int) -> dict[str, Any]:
    all_of_them = [b for record in records for b in record.barge_ins if b.onset >= begin]
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


def _false_starts(made: Sequence[FalseStart]) -> dict[str, Any]:
    return {
        "count": len(made),
        "into_answers": sum(f.response is not None for f in made),
        "cut": sum(f.cut for f in made),
        "answered": sum(f.answered for f in made),
    }


def duration_s(records: Sequence[UserRecord]) -> float:
    """From the first word of the first user to the end of the last turn."""
    begun = [turn.u0 for record in records for turn in record.turns]
    ended = [turn.end for record in records for turn in record.turns if turn.end is not None]
    return max(0.0, (max(ended) - min(begun)) / NS_PER_S) if begun and ended else 0.0
