"""`session-loadgen run`: a load against a real server, its report, and whether its bars held.

`ab`: two settings of a server under the same load, in turns, on this machine; what one does over the other.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import urllib.parse
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from loadgen.arrivals import arrivals
from loadgen.call_reception import BadNetwork
from loadgen.camera import film
from loadgen.cli.parser import parse
from loadgen.drivers.camera_feed import Cameras
from loadgen.drivers.load_run import LoadOutcome, LoadPlan
from loadgen.drivers.websocket import WsDriver
from loadgen.drivers.wire_client import UserPlan, even_workload
from loadgen.lab import interleave, report as reports
from loadgen.server_probe import ServerProbe
from loadgen.slo import Bar, judge, read_bars
from loadgen.speech import Material, recorded, synthesised
from loadgen.workloads import complaints, find_workload
from session_server.simulation.spec import CameraUse, Workload
from session_server.types.audio import NS_PER_S
from session_server.types.errors import ConfigError

if TYPE_CHECKING:
    from loadgen.drivers.webrtc import RtcDriver


PAUSE_S = 1.0
TURN_LIMIT_S = 30.0
CALLS = "/v1/realtime/calls"
_CAMERA_OPTIONS = {
    "camera": ("kind",),
    "camera_fps": ("fps",),
    "camera_size": ("width", "height"),
    "camera_users": ("users",),
    "camera_path": ("path",),
}
"""Which fields of a camera each option sets."""


def realtime_url(url: str, extensions: Sequence[str] = ()) -> str:
    """A WebSocket URL: http becomes ws, HOST:PORT is enough, no path becomes /v1/realtime. Raises ConfigError."""
    parts = _split(url, "ws")
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ConfigError(f"--url {url!r}: must be like ws://127.0.0.1:8000/v1/realtime")
    path = "/v1/realtime" if parts.path in ("", "/") else parts.path
    query = urllib.parse.parse_qsl(parts.query)
    if extensions:
        query.append(("extensions", ",".join(extensions)))
    return urllib.parse.urlunsplit((scheme, parts.netloc, path, urllib.parse.urlencode(query), ""))


def calls_url(url: str, extensions: Sequence[str] = ()) -> str:
    """Where offers go: HOST:PORT is enough, no path becomes /v1/realtime/calls. Raises ConfigError."""
    parts = _split(url, "http")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"--url {url!r}: must be like http://127.0.0.1:8000 with --driver webrtc")
    path = CALLS if parts.path in ("", "/", "/v1/realtime") else parts.path
    query = urllib.parse.parse_qsl(parts.query)
    if extensions:
        query.append(("extensions", ",".join(extensions)))
    return urllib.parse.urlunsplit(
        (parts.scheme, parts.netloc, path, urllib.parse.urlencode(query), "")
    )


def _split(url: str, scheme: str) -> urllib.parse.SplitResult:
    """Raises ConfigError."""
    try:
        parts = urllib.parse.urlsplit(url if "://" in url else f"{scheme}://{url}")
        port = parts.port  # one that is no number shows when it is asked for
    except ValueError as error:
        raise ConfigError(f"--url {url!r}: {error}") from None
    if "://" not in url and port is None:  # a word alone is more likely a slip than a host
        return urllib.parse.urlsplit(url)
    return parts


def run(options: argparse.Namespace, console: Console) -> int:
    bars = read_bars(options.slo) if options.slo is not None else []
    judge(
        bars, _report(options, LoadOutcome(), "", None)
    )  # a wrong key shows before the run, not after
    load = _load(options)
    if options.report is not None and not options.report.parent.is_dir():
        raise ConfigError(f"--report {options.report}: no such folder")
    probe = ServerProbe(load.url, pid=options.server_pid, api_key=options.api_key)
    with Progress(
        TextColumn("turns"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    ) as bar:
        task = bar.add_task("", total=_planned(options))
        driver = _driver(options, load, probe, lambda turns: bar.update(task, completed=turns))
        complete = _drive(driver)
    report = _report(options, driver.outcome, load.material.source, probe.origin)
    report["complete"] = complete
    if options.report is not None:
        reports.write(report, options.report)
    reports.print_report(report, console)
    _tell_refusals(driver.outcome, console)
    if not complete:
        console.print("interrupted: this is a part", markup=False)
        return 130
    return _verdict(bars, report, console)


def _driver(
    options: argparse.Namespace, load: LoadPlan, probe: ServerProbe, progress: Callable[[int], None]
) -> WsDriver | RtcDriver:
    if options.driver == "ws":
        return WsDriver(load, probe, progress=progress)
    from loadgen.drivers.webrtc import RtcDriver  # aiortc takes a fifth of the start of a run

    return RtcDriver(load, probe, network=_network(options), progress=progress)


def _network(options: argparse.Namespace) -> BadNetwork:
    return BadNetwork(options.loss or 0.0, options.jitter_ms or 0.0)


def _planned(options: argparse.Namespace) -> int:
    turns: int = options.users * options.rounds * options.turns
    return turns


def _report(
    options: argparse.Namespace, outcome: LoadOutcome, speech: str, origin: str | None
) -> dict[str, Any]:
    report = reports.build(
        outcome,
        users=options.users,
        planned=_planned(options),
        seed=options.seed,
        workload=_workload(options, speech),
        origin=origin,
        camera=users_of(options).camera,
    )
    report["sessions_refused"] += len(outcome.refusals)
    report["refusals"] = _refusals(outcome)
    return report


def _refusals(outcome: LoadOutcome) -> dict[str, Any]:
    """What those heard whom the server did not take in, and when they were to come again."""
    waits = sorted(one.retry_after_s for one in outcome.refusals if one.retry_after_s is not None)
    middle = waits[len(waits) // 2] if waits else None
    return {
        "count": len(outcome.refusals),
        "retry_after_s": {
            "count": len(waits),
            "p0": min(waits, default=None),
            "p50": middle,
            "p100": max(waits, default=None),
        },
        "said": dict(Counter(one.said for one in outcome.refusals)),
    }


def _tell_refusals(outcome: LoadOutcome, console: Console) -> None:
    told = _refusals(outcome)
    waits = told["retry_after_s"]
    for said, count in told["said"].items():
        console.print(f"refused {count} times: {said}", markup=False)
    if waits["count"]:
        console.print(
            f"to come again in {waits['p0']} to {waits['p100']} s (median {waits['p50']})",
            markup=False,
        )


def _drive(driver: WsDriver | RtcDriver) -> bool:
    """False: somebody pressed Ctrl-C, and there is a part; raises KeyboardInterrupt when there is nothing."""
    try:
        with asyncio.Runner(loop_factory=_fast_loop) as runner:
            runner.run(driver.run())
    except KeyboardInterrupt:
        if not any(record.turns for record in driver.outcome.records):
            raise
        return False
    return True


def _fast_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


def _verdict(bars: list[Bar], report: dict[str, Any], console: Console) -> int:
    verdicts = judge(bars, report)
    reports.print_verdicts(verdicts, console)
    return 0 if all(verdict.held for verdict in verdicts) else 1


def _load(options: argparse.Namespace) -> LoadPlan:
    url = _url(options)
    detection: dict[str, Any] = {"type": options.turn_detection}
    if options.silence_ms is not None:
        if options.turn_detection != "server_vad":
            raise ConfigError("--silence-ms goes with --turn-detection server_vad only")
        detection["silence_duration_ms"] = options.silence_ms
    workload = users_of(options)
    starts = arrivals(options.arrivals, options.users, random.Random(options.seed))
    cameras = _cameras(workload)
    plan = UserPlan(options.turns, workload, detection, "playback" in options.extensions, cameras)
    material = _material(options, says_mhm=bool(workload.backchannel or workload.backchannel_per_s))
    return LoadPlan(
        url,
        plan,
        material,
        starts,
        options.seed,
        options.rounds,
        options.knock_again,
        options.api_key,
    )


def _url(options: argparse.Namespace) -> str:
    if options.driver == "webrtc":
        return calls_url(options.url, tuple(options.extensions))
    for name, value in (("loss", options.loss), ("jitter-ms", options.jitter_ms)):
        if value is not None:
            raise ConfigError(f"--{name} goes with --driver webrtc only")
    return realtime_url(options.url, options.extensions)


def _cameras(workload: Workload) -> Cameras | None:
    """Drawn before the run, which takes seconds."""
    use = workload.camera
    if use is None:
        return None
    return Cameras.of(use, film(use) if use.kind != "none" and use.share else None)


def users_of(options: argparse.Namespace) -> Workload:
    """How they behave, and with which cameras: as in a scenario, or as the options say. Raises ConfigError."""
    workload = replace(_behaviour(options), camera=camera_of(options, _behaviour(options).camera))
    if faults := complaints(workload):
        raise ConfigError("; ".join(faults))
    return workload


def camera_of(options: argparse.Namespace, use: CameraUse | None) -> CameraUse | None:
    """The workload's camera with what the options change; None: nobody has one."""
    changes: dict[str, Any] = {}
    for option, names in _CAMERA_OPTIONS.items():
        given = getattr(options, option)
        if given is not None:
            changes |= zip(names, given if isinstance(given, tuple) else (given,), strict=True)
    if "users" in changes:
        wanted = changes.pop("users")
        if wanted > options.users:
            raise ConfigError(f"--camera-users {wanted}: there are {options.users} users")
        changes["share"] = wanted / options.users
    if not changes:
        return use
    if use is None and "kind" not in changes:
        raise ConfigError("--camera-fps and the like need --camera, or a workload with cameras")
    return replace(use if use is not None else CameraUse(), **changes)


def _behaviour(options: argparse.Namespace) -> Workload:
    if options.workload is None:
        barge_in, backchannel = options.barge_in or 0.0, options.backchannel or 0.0
        if barge_in + backchannel > 1:
            raise ConfigError("--barge-in and --backchannel together are more than 1")
        pause_s = PAUSE_S if options.pause is None else options.pause
        limit_s = options.turn_limit or TURN_LIMIT_S
        return even_workload(
            barge_in=barge_in,
            backchannel=backchannel,
            pause_ns=int(pause_s * NS_PER_S),
            limit_ns=int(limit_s * NS_PER_S),
        )
    for name in ("pause", "backchannel"):
        if getattr(options, name) is not None:
            raise ConfigError(f"--{name} does not go with --workload, which has its own")
    workload = find_workload(options.workload).workload
    if workload.trace is not None:
        raise ConfigError(f"--workload {options.workload}: only a simulation can repeat a trace")
    if options.barge_in is not None:
        workload = replace(workload, barge_in=options.barge_in)
        if workload.barge_in + workload.backchannel > 1:
            raise ConfigError("--barge-in and the workload's backchannel together are more than 1")
    if options.turn_limit is not None:
        workload = replace(workload, wait_limit_s=options.turn_limit)
    return workload


def _material(options: argparse.Namespace, *, says_mhm: bool) -> Material:
    if options.speech is None:
        if options.backchannel_speech is not None:
            raise ConfigError("--backchannel-speech goes with --speech")
        return synthesised()
    material = recorded(options.speech, options.backchannel_speech)
    if says_mhm and not material.backchannels:
        raise ConfigError("--backchannel with --speech needs --backchannel-speech DIR")
    return material


def _workload(options: argparse.Namespace, speech: str) -> dict[str, Any]:
    workload = users_of(options)
    return {
        "name": workload.name,
        "url_path": urllib.parse.urlsplit(_url(options)).path,
        "turns_per_session": options.turns,
        "rounds": options.rounds,
        "barge_in": workload.barge_in,
        "backchannel": workload.backchannel,
        "backchannel_per_s": workload.backchannel_per_s,
        "false_start_per_min": workload.false_start_per_min,
        "early_start": workload.early_start,
        "hang_up": workload.hang_up,
        "drop": workload.drop,
        "turn_detection": options.turn_detection,
        "silence_ms": options.silence_ms,
        "think_least_s": asdict(workload.think_least_s),
        "think_s": asdict(workload.think_s),
        "turn_limit_s": workload.wait_limit_s,
        "arrivals": options.arrivals,
        "speech": speech,
        "camera": None if workload.camera is None else asdict(workload.camera),
        "extensions": sorted(set(options.extensions)),
        "player": {"quantum_ms": 20, "pre_roll_ms": 0},
        "network": _network(options).told(),
    }


def run_ab(options: argparse.Namespace, console: Console) -> int:
    arms = {
        "A": interleave.arm_of("A", options.a),
        "B": interleave.arm_of("B", options.b),
    }
    interleave.require_settings(arms, options.config)
    blocks = interleave.plan(options.users, options.order, options.seed)
    if options.report is not None and not options.report.parent.is_dir():
        raise ConfigError(f"--report {options.report}: no such folder")
    if any(option.partition("=")[0] == "--url" for option in options.load):
        raise ConfigError("--url: `ab` starts the servers itself")
    # a wrong load option shows before the first server starts
    for arm in arms.values():
        users = f"--users={min(options.users)}"
        users_of(parse(["run", "--url=127.0.0.1:1", users, *options.load, *arm.load_options]))

    def begin(number: int, block: interleave.Block) -> None:
        console.rule(f"{number + 1} of {len(blocks)}: {block.arm}, {block.users} users", style="")

    reports = interleave.run_blocks(blocks, arms, options.config, options.load, begin)
    compared = interleave.compare(blocks, reports)
    if options.report is not None:
        interleave.write(options.report, arms, blocks, compared, reports, options.load)
    for line in interleave.heading(arms, options.load):
        console.print(line, markup=False)
    for users, figures in compared.items():
        table = Table(title=f"{users} users")
        for title in ("", "A", "B", "B / A", "pairs"):
            table.add_column(title, justify="right" if title else "left")
        for path, one in figures.items():
            pairs = ", ".join(f"{ratio:.2f}" for ratio in one["ratios"])
            table.add_row(
                path, _shown(one["a_mean"]), _shown(one["b_mean"]), _shown(one["ratio"]), pairs
            )
        console.print(table)
    return 0


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
