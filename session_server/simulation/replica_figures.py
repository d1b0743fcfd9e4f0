"""Figures of the replicas' hosts, beside those of their users: residency, admission, the overload ladder.

One function; its keys go into the report as they are. Bytes, seconds in `_s`, milliseconds in `_ms`. Shares of nothing
are null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from session_server.scheduler.admission import OverloadStep
from session_server.scheduler.residency_events import PreloadResult
from session_server.simulation.host_records import HostRecords, KvRecords
from session_server.simulation.replica import Replica
from session_server.types.audio import NS_PER_MS

SESSION_REASONS = ("sessions", "session_load", "session")
"""Reasons of decisions about sessions; all others are about turns."""


def replica_figures(replicas: Sequence[Replica], end_ns: int) -> dict[str, Any]:
    """`residency` (of the turns after the warm-up), `admission` and `overload` (of the whole run)."""
    said = [replica.said for replica in replicas]
    return {
        "residency": _residency(replicas),
        "admission": _admission(said),
        "overload": _overload(said, end_ns),
    }


def _residency(replicas: Sequence[Replica]) -> dict[str, Any]:
    kv = [replica.kv for replica in replicas]
    waits = [ns / NS_PER_MS for one in kv for ns in one.waits_ns]
    reloads = [ns / NS_PER_MS for one in kv for ns in one.reloads_ns]
    preloads: Counter[PreloadResult] = sum((one.preloads for one in kv), Counter())
    moved: Counter[PreloadResult] = sum((one.preload_bytes for one in kv), Counter())
    hits, wasted = preloads[PreloadResult.HIT], moved[PreloadResult.WASTED]
    return {
        "kv_eviction": replicas[0].params.kv_eviction.value,
        "preload": replicas[0].params.kv_preload,
        "on_path_reload_ms": percentiles(waits),
        "reload_of_those_ms": percentiles(reloads),
        "turns": len(waits),
        "reloads": len(reloads),
        "hidden_share": _share(hits, hits + len(reloads)),
        "preloads": {result.value: preloads[result] for result in PreloadResult},
        "preloaded_bytes": sum(one.loaded_ahead_bytes for one in kv),
        "wasted_preload_share": _share(wasted, sum(moved.values())),
        "evicted_bytes": sum(sum(one.evicted_bytes.values()) for one in kv),
        "moved_bytes": sum(one.loaded_bytes + one.offloaded_bytes for one in kv),
        "protected_peak_bytes": max((one.protected_peak_bytes for one in kv), default=0),
        "occupancy": _mean_share(kv, "occupied_ns"),
        "state_over_pool": _mean_share(kv, "state_ns"),
        "tokens_read": sum(replica.tokens_read for replica in replicas),
    }


def _mean_share(kv: Sequence[KvRecords], what: str) -> float | None:
    """Average over time and replicas."""
    seconds = sum(one.seconds_ns for one in kv)
    total = sum(float(getattr(one, what)) for one in kv)
    return round(total / seconds, 4) if seconds else None


def _admission(said: Sequence[HostRecords]) -> dict[str, Any]:
    """Of sessions; those of turns under `turns`. Whoever is refused and knocks again is offered twice."""
    decisions: Counter[tuple[str, str]] = sum((one.decisions for one in said), Counter())
    sessions = {key: n for key, n in decisions.items() if key[1] in SESSION_REASONS}
    turns = {key: n for key, n in decisions.items() if key[1] not in SESSION_REASONS}
    hints = [float(hint) for one in said for hint in one.hints_s]
    return {
        **_decided(sessions),
        "retry_after_s": percentiles(hints),
        "deferred": sum(n for (decision, _), n in turns.items() if decision == "defer"),
        "turns": _decided(turns),
    }


def _decided(decisions: dict[tuple[str, str], int]) -> dict[str, Any]:
    admitted = sum(n for (decision, _), n in decisions.items() if decision == "admit")
    refused = {reason: n for (decision, reason), n in decisions.items() if decision == "refuse"}
    return {
        "offered": admitted + sum(refused.values()),
        "admitted": admitted,
        "refused": dict(sorted(refused.items())),
    }


def _overload(said: Sequence[HostRecords], end_ns: int) -> dict[str, float]:
    """Seconds on each step of the ladder, over all replicas."""
    ladders = [one.ladder_s(end_ns) for one in said]
    return {
        step.value: round(sum(ladder.get(step.value, 0.0) for ladder in ladders), 3)
        for step in OverloadStep
    }


def percentiles(values: Iterable[float], shares: Sequence[int] = (50, 95, 99)) -> dict[str, Any]:
    """Nearest rank; null where there is no value."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        f"p{share}": round(ordered[min(last, len(ordered) * share // 100)], 3) if ordered else None
        for share in shares
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
