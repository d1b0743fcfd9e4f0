"""One metrics page for a server of several processes: what each counted, added up.

Each process has a `Metrics` of its own; `counts_of` is what it tells the one that answers `/metrics`, and `Totals` there adds. Not
prometheus-client's multiprocess mode: that keeps files which the process must know of before it imports the library, has no process
figures and no gauges that are read at the scrape, and forgets nothing of a process that is gone but its gauges only if it is told.

Invariants: counters and histograms of a process that is gone stay in the sum, as it last told them, so they never fall; its gauges
go. A gauge is the sum over the processes, unless the catalogue says that the greatest counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

import msgspec
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from session_server.observability.catalogue import PREFIX, SPECS
from session_server.observability.metrics import Metrics

_GREATEST = frozenset(f"{PREFIX}_{spec.name}" for spec in SPECS if spec.greatest)
_OWN = frozenset({"process_start_time_seconds", "process_max_fds"})
"""A sum of these says nothing: the answering process gives its own."""

_LASTING = ("counter", "histogram")

Key = tuple[str, tuple[str, ...]]
"""A sample's name, then its labels: name and value in turn."""


class FamilyCounts(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The samples of one metric."""

    name: str
    samples: list[tuple[str, tuple[str, ...], float]]


def counts_of(metrics: Metrics) -> list[FamilyCounts]:
    """What a process has counted. A metric that is all zero says nothing."""
    return [
        FamilyCounts(family.name, [(s.name, _labels(s), s.value) for s in family.samples])
        for family in metrics.families()
        if any(sample.value for sample in family.samples)
    ]


class Totals(Collector):
    """The whole server's metrics. `own`: those of this process; the others are known by any key that the caller likes."""

    def __init__(self, own: Metrics) -> None:
        self._own = own
        self._lasting = {f.name for f in own.families() if f.type in _LASTING}
        self._latest: dict[Hashable, list[FamilyCounts]] = {}
        self._gone: dict[str, dict[Key, float]] = {}

    def tell(self, process: Hashable, counts: list[FamilyCounts]) -> None:
        """What `process` has counted in all so far."""
        self._latest[process] = counts

    def ended(self, process: Hashable) -> None:
        """It counts no further. Idempotent."""
        for family in self._latest.pop(process, []):
            if family.name in self._lasting:
                _add(self._gone.setdefault(family.name, {}), family.samples)

    def page(self) -> bytes:
        """The text exposition."""
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        others: dict[str, list[FamilyCounts]] = {}
        for counts in self._latest.values():
            for family in counts:
                others.setdefault(family.name, []).append(family)
        for metric in self._own.families():
            yield self._whole(metric, others.get(metric.name, []))

    def _whole(self, metric: Metric, others: list[FamilyCounts]) -> Metric:
        if metric.name in _OWN:
            return metric
        sums = {(s.name, _labels(s)): s.value for s in metric.samples}
        for family in others:
            if metric.name in _GREATEST:
                for name, labels, value in family.samples:
                    sums[name, labels] = max(value, sums.get((name, labels), value))
            else:
                _add(sums, family.samples)
        for key, value in self._gone.get(metric.name, {}).items():
            sums[key] = sums.get(key, 0.0) + value
        metric.samples = [Sample(name, _dict(labels), v) for (name, labels), v in sums.items()]
        return metric


def _add(sums: dict[Key, float], samples: Iterable[tuple[str, tuple[str, ...], float]]) -> None:
    for name, labels, value in samples:
        sums[name, labels] = sums.get((name, labels), 0.0) + value


def _labels(sample: Sample) -> tuple[str, ...]:
    return tuple(part for pair in sample.labels.items() for part in pair)


def _dict(labels: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(labels[::2], labels[1::2], strict=True))
