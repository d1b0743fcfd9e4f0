"""How many calls a core holds, and what one costs: the media paths of WebRTC beside each other, in turns, in one command.

    python -m tests.benchmarks.webrtc_capacity --compare 16 --climb stock=16,20,24 --climb cheap=40,50,60 --rounds 3

Each point is a fresh server on simulated engines, pinned to one core, and so many virtual callers on another: each has asked its
question and hears a long answer while its microphone sends a quiet room, so that Opus goes both ways all the time. What is read
then: CPU of the server's process, and how late packets reach the callers against the 20 ms grid. Rounds repeat everything in
turns; medians count. A path holds N calls if the median of p99 is at most 20 ms there and at every smaller number measured; no round
climbs farther once packets are HOPELESS_MS late.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import random
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path

import uvloop
import yaml

from loadgen.drivers.load_run import LoadPlan
from loadgen.drivers.webrtc import RtcDriver
from loadgen.drivers.wire_client import UserPlan
from loadgen.lab.interleave import Arm, arm_of, served
from loadgen.measure import percentile
from loadgen.server_probe import Sample, ServerProbe
from loadgen.speech import Material, synthesised
from loadgen.users.script import State

ROOT = Path(__file__).resolve().parents[2]
BAR_MS = 20.0
HOPELESS_MS = 150.0
MS = 1e6
ANSWER_WORDS = 600
BATCH = 32
JUDGE_EVERY = 8
APART_S = 0.06
SETTLE_S = 2.0
READY_S = 15.0
PROBED_S = 0.3
"""Reading /metrics stops the server's loop for some tens of milliseconds: not within the look at lateness."""


@dataclass(frozen=True, slots=True)
class Point:
    """What to measure: a media path, a voice detector, so many calls."""

    path: str
    vad: str
    calls: int


@dataclass(frozen=True, slots=True)
class Found:
    """What came of it. `listening`: calls with an answer playing when the window began; `cpu_ms`: per second and call; the
    callers' own lateness stands beside the packets', since they are measured by it."""

    point: Point
    listening: int
    cpu_ms: float | None
    core_percent: float | None
    late_p50_ms: float
    late_p95_ms: float
    late_p99_ms: float
    late_max_ms: float
    callers_late_p99_ms: float
    packets: int
    rss_mb: float | None


def cores() -> tuple[set[int], set[int]]:
    """Of the server, and of the callers: the same one where there is no other."""
    known = sorted(os.sched_getaffinity(0))
    return {known[0]}, set(known[1:]) or {known[0]}


@contextlib.contextmanager
def server_of(
    point: Point, settings: tuple[tuple[str, str], ...], own: set[int], ours: set[int]
) -> Iterator[str]:
    """A server of the point's settings on its core; its URL."""
    config = yaml.safe_load((ROOT / "configs/sim.yaml").read_text())
    for name in ("thinker", "talker", "codec", "vocoder"):  # the engines are not what is measured
        config["graph"]["stages"][name] |= {"max_batch": BATCH, "options": {"max_batch": BATCH}}
    words = {"words": ANSWER_WORDS, "max_tokens": 4 * ANSWER_WORDS, "slots": 256}
    config["graph"]["stages"]["thinker"]["options"] |= words
    config["scheduler"] |= {"max_sessions": 256, "admission": False}
    config["vad"] = {"engine": point.vad}
    config["webrtc"] = {"host_addresses": ["127.0.0.1"], "max_setups": 4}
    config["webrtc"]["max_lateness_ms"] = (
        1000  # the door does not close: what happens then is looked for
    )
    if point.path != "present":
        config["webrtc"]["media_path"] = point.path
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        os.sched_setaffinity(0, own)  # what is begun now inherits it
        with served(Arm(point.path, settings), path) as url:
            os.sched_setaffinity(0, ours)
            yield url


async def window(point: Point, url: str, material: Material, seconds: float) -> Found:
    """Let everybody call, wait until all of them hear an answer, and look for so long."""
    starts = [index * APART_S for index in range(point.calls)]
    plan = UserPlan.even(
        1, pause_ns=int(0.2e9), limit_ns=int(40e9), turn_detection={"type": "server_vad", "silence_duration_ms": 320}
    )  # fmt: skip
    load = LoadPlan(f"{url}/v1/realtime/calls", plan, material, starts, random.randrange(1 << 30))
    probe = ServerProbe(url)
    driver = RtcDriver(load, ServerProbe("http://127.0.0.1:1"), judge_every=JUDGE_EVERY)
    running = asyncio.create_task(driver.run())
    try:
        await _until_listening(driver, running, point.calls)
        await asyncio.sleep(SETTLE_S)
        listening = _listening(driver)
        gc.collect()
        gc.disable()  # a pause of ours would be taken for lateness of the server
        before = await asyncio.to_thread(probe.sample)
        await asyncio.sleep(PROBED_S)
        for caller in driver.live:
            caller.figures.arrivals.clear()
        driver.outcome.late_ns.clear()
        await asyncio.sleep(seconds)
        late = [x / MS for caller in driver.live for x in caller.figures.arrivals.late_ns()]
        own = [x / MS for x in driver.outcome.late_ns]
        after = await asyncio.to_thread(probe.sample)
    finally:
        gc.enable()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    return _found(point, listening, before, after, late or [9999.0], own or [9999.0])


def _listening(driver: RtcDriver) -> int:
    return sum(caller.client.user.state is State.LISTENING for caller in driver.live)


async def _until_listening(driver: RtcDriver, running: asyncio.Task[object], calls: int) -> None:
    for _ in range(int(READY_S / 0.1)):
        if _listening(driver) == calls or running.done():
            return
        await asyncio.sleep(0.1)


def _found(
    point: Point, listening: int, before: Sample | None, after: Sample | None, late: list[float], own: list[float]
) -> Found:  # fmt: skip
    cpu = seconds = None
    if before is not None and after is not None and before.cpu_s is not None:
        cpu, seconds = (after.cpu_s or 0.0) - before.cpu_s, after.at_s - before.at_s
    p50, p95, p99 = (round(percentile(late, share), 1) for share in (0.5, 0.95, 0.99))
    return Found(
        point,
        listening,
        round(cpu / seconds / point.calls * 1000, 2) if cpu and seconds else None,
        round(cpu / seconds * 100, 1) if cpu and seconds else None,
        p50,
        p95,
        p99,
        round(max(late), 1),
        round(percentile(own, 0.99), 1),
        len(late),
        round(after.rss_bytes / 1e6, 1) if after is not None and after.rss_bytes else None,
    )


def points_of(options: argparse.Namespace, lap: int) -> list[Point]:
    """One round: what is compared, in the other order every other round, so that a machine that drifts favours nobody; then each
    path upwards, in turns."""
    compared = [Point(p, v, options.compare) for v in options.vad for p in options.paths]
    ways = [
        [Point(path, options.vad[0], n) for n in sorted(counts)] for path, counts in options.climb
    ]
    climbed = [point for step in zip_longest(*ways) for point in step if point is not None]
    return (compared[:: 1 if lap % 2 == 0 else -1] if options.compare else []) + climbed


def hopeless(point: Point, found: Sequence[Found], lap_began: int) -> bool:
    """This path was far too late in this round already, with fewer calls."""
    return any(
        one.late_p99_ms > HOPELESS_MS
        and (one.point.path, one.point.vad) == (point.path, point.vad)
        and one.point.calls < point.calls
        for one in found[lap_began:]
    )


def medians(found: Sequence[Found], name: str) -> dict[Point, float]:
    points = dict.fromkeys(one.point for one in found)
    own = {p: [getattr(one, name) for one in found if one.point == p] for p in points}
    return {
        p: round(statistics.median(known), 2)
        for p, values in own.items()
        if (known := [value for value in values if value is not None])
    }


def verdict(found: Sequence[Found]) -> dict[str, object]:
    """CPU of every path at the compared number, ratios round by round, and the most calls that a path holds."""
    late = medians(found, "late_p99_ms")
    cpu, heard = medians(found, "cpu_ms"), medians(found, "listening")
    held = {}
    for path in dict.fromkeys(point.path for point in late):
        own = {p.calls: late[p] for p in late if p.path == path and p.vad == found[0].point.vad}
        full = {p.calls for p in late if p.path == path and heard[p] == p.calls}
        good = [n for n in own if all(own[m] <= BAR_MS and m in full for m in own if m <= n)]
        held[path] = max(good, default=0)
    return {
        "calls_at_bar": held,
        "cpu_ms_per_s_each": {name_of(point): value for point, value in cpu.items()},
        "late_p99_ms": {name_of(point): value for point, value in late.items()},
        "ratios": _ratios(found),
    }


def name_of(point: Point) -> str:
    return f"{point.path} {point.vad} {point.calls}"


def _ratios(found: Sequence[Found]) -> dict[str, dict[str, object]]:
    """Of CPU, every path over the first at the same number of calls and with the same detector, k-th with k-th."""
    base = found[0].point.path
    out: dict[str, dict[str, object]] = {}
    for point in dict.fromkeys(one.point for one in found if one.point.path != base):
        other = Point(base, point.vad, point.calls)
        pairs = zip(
            *([o.cpu_ms for o in found if o.point == p] for p in (point, other)), strict=False
        )
        ratios = [round(a / b, 3) for a, b in pairs if a and b]
        if ratios:
            name = f"{point.path}/{base}, {point.vad}, {point.calls} calls"
            out[name] = {"median": round(statistics.median(ratios), 3), "rounds": ratios}
    return out


def shown(one: Found) -> str:
    p = one.point
    return (
        f"{p.path:>8} {p.vad:>7} {p.calls:>4} calls: {one.cpu_ms} ms/s each, core {one.core_percent} %, late "
        f"p50 {one.late_p50_ms} p95 {one.late_p95_ms} p99 {one.late_p99_ms} max {one.late_max_ms} ms "
        f"(callers' own p99 {one.callers_late_p99_ms}), {one.packets} packets, {one.listening} heard, {one.rss_mb} MB"
    )


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    def counts(text: str) -> tuple[str, list[int]]:
        path, _, numbers = text.partition("=")
        return path, [int(number) for number in numbers.split(",")]

    def words(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add = parser.add_argument
    add("--paths", type=words, default=["stock", "cheap"], help="values of webrtc.media_path to compare; `present`: as configured (default: stock,cheap)")  # fmt: skip
    add("--vad", type=words, default=["webrtc"], help="voice detectors to compare with; the first climbs (default: webrtc)")  # fmt: skip
    add("--compare", type=int, default=0, metavar="N", help="compare the CPU of all paths at N calls")  # fmt: skip
    add("--climb", type=counts, action="append", default=[], metavar="PATH=N,N,..", help="measure a path at these numbers of calls")  # fmt: skip
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all servers, like echo_guard.enabled=false")  # fmt: skip
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=8.0, help="length of each look (default: 8)")
    add("--report", type=Path, metavar="FILE", help="write everything as JSON, after each point")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else the server would outlive us
    settings = arm_of("set", options.set).settings
    own, ours = cores()
    os.sched_setaffinity(0, ours)
    material = synthesised()
    found: list[Found] = []
    for lap in range(options.rounds):
        lap_began = len(found)
        for point in points_of(options, lap):
            if hopeless(point, found, lap_began):
                continue
            with (
                server_of(point, settings, own, ours) as url,
                asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
            ):
                found.append(runner.run(window(point, url, material, options.seconds)))
            print(shown(found[-1]), file=sys.stderr, flush=True)
            if options.report is not None:
                content = {
                    **verdict(found),
                    "settings": settings,
                    "points": [asdict(one) for one in found],
                }
                options.report.write_text(json.dumps(content, indent=2) + "\n")
    print(json.dumps(verdict(found), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
