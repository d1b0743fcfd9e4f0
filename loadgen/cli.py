"""`session-loadgen`: speak to a server as many users at once, and say how it felt.

Exit codes: 0 done; 1 an SLO was missed; 2 wrong arguments or files; 3 no session could be opened.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from loadgen import report as reports
from loadgen.arrivals import FORMS, arrivals
from loadgen.driver_ws import Load, Outcome, RunFailed, WsDriver
from loadgen.server_probe import ServerProbe
from loadgen.slo import Bar, judge, read_bars
from loadgen.speech import Material, recorded, synthesised
from loadgen.virtual_user import Plan
from session_server.errors import ConfigError
from session_server.media import NS_PER_S

EXTENSIONS = ("playback",)


def main(argv: Sequence[str] | None = None) -> int:
    """The console script."""
    options = _parser().parse_args(argv)
    console = Console(stderr=True)
    try:
        code: int = options.command(options, console)
    except ConfigError as fault:
        console.print(f"session-loadgen: {fault}", markup=False, soft_wrap=True)
        return 2
    except RunFailed as fault:
        console.print(f"session-loadgen: {fault}", markup=False, soft_wrap=True)
        return 3
    except KeyboardInterrupt:
        console.print("session-loadgen: interrupted", markup=False)
        return 130
    return code


def realtime_url(url: str, extensions: Sequence[str] = ()) -> str:
    """A WebSocket URL: http becomes ws, no path becomes /v1/realtime. Raises ConfigError."""
    parts = urllib.parse.urlsplit(url)
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ConfigError(f"--url {url!r}: must be like ws://127.0.0.1:8000/v1/realtime")
    path = "/v1/realtime" if parts.path in ("", "/") else parts.path
    query = urllib.parse.parse_qsl(parts.query)
    if extensions:
        query.append(("extensions", ",".join(extensions)))
    return urllib.parse.urlunsplit((scheme, parts.netloc, path, urllib.parse.urlencode(query), ""))


def _number(kind: Callable[[str], Any], least: float, most: float) -> Callable[[str], Any]:
    def parse(text: str) -> Any:  # noqa: ANN401
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not within {least:g} and {most:g}")
        return value

    parse.__name__ = kind.__name__
    return parse


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="session-loadgen",
        description="Speak to a realtime server as many users who listen, acknowledge and interrupt.",
        epilog="Exit codes: 0 done; 1 an SLO was missed; 2 wrong arguments or files; 3 no session could be opened.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands.add_parser("run", help="run a load and report it", allow_abbrev=False))
    show = commands.add_parser("report", help="print a report, or two side by side with ratios")
    show.add_argument("files", nargs="+", type=Path, metavar="FILE", help="one or two report files")
    show.set_defaults(command=_show)
    return parser


def _add_run(run: argparse.ArgumentParser) -> None:
    # fmt: off
    add = run.add_argument
    add("--url", required=True, help="the server, like ws://127.0.0.1:8000/v1/realtime")
    add("--driver", choices=("ws",), default="ws", help="how users connect (default: ws)")
    add("--users", type=_number(int, 1, 1000), default=1, metavar="N", help="users at once (default: 1)")
    add("--turns", type=_number(int, 1, 100_000), default=5, metavar="T", help="turns of each user in a session (default: 5)")
    add("--rounds", type=_number(int, 1, 100_000), default=1, metavar="R", help="sessions of each user, one after another (default: 1)")
    add("--barge-in", type=_number(float, 0, 1), default=0.0, metavar="P", help="share of answers that the user interrupts (default: 0)")
    add("--backchannel", type=_number(float, 0, 1), default=0.0, metavar="P", help='share of answers into which the user says "mhm" (default: 0)')
    add("--seed", type=int, default=0, metavar="S", help="same seed, same behaviour of the users (default: 0)")
    add("--turn-detection", choices=("server_vad", "semantic_vad"), default="server_vad", help="who decides that a turn has ended (default: server_vad)")
    add("--silence-ms", type=_number(int, 50, 10_000), metavar="M", help="silence that ends a turn, server_vad only (default: the server's)")
    add("--pause", type=_number(float, 0, 600), default=1.0, metavar="S", help="mean pause between an answer and the next question, in seconds (default: 1)")
    add("--turn-limit", type=_number(float, 1, 3600), default=30.0, metavar="S", help="longest wait for the server, in seconds (default: 30)")
    add("--arrivals", default="ramp:2", metavar="FORM", help=f"{FORMS} (default: ramp:2)")
    add("--speech", type=Path, metavar="DIR", help="wav or flac files to speak; NAME.txt beside NAME.wav has the words (default: synthesised)")
    add("--backchannel-speech", type=Path, metavar="DIR", help="recordings of backchannels, with --speech")
    add("--extensions", action="append", choices=EXTENSIONS, default=[], help="opt in to an extension of the protocol")
    add("--api-key", metavar="KEY", help="sent as bearer key")
    add("--server-pid", type=int, metavar="PID", help="where to read CPU and memory if /metrics cannot be reached")
    add("--report", type=Path, metavar="FILE", help="write the report as JSON")
    add("--slo", type=Path, metavar="FILE", help="YAML of bars like `ttfa_ms.p95: {max: 1500}`; a missed one exits with 1")
    # fmt: on
    run.set_defaults(command=_run)


def _run(options: argparse.Namespace, console: Console) -> int:
    bars = read_bars(options.slo) if options.slo is not None else []
    judge(
        bars, _report(options, Outcome(), "", None)
    )  # a wrong key shows before the run, not after
    load = _load(options)
    if options.report is not None and not options.report.parent.is_dir():
        raise ConfigError(f"--report {options.report}: no such folder")
    probe = ServerProbe(load.url, pid=options.server_pid, api_key=options.api_key)
    with Progress(
        TextColumn("turns"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    ) as bar:
        task = bar.add_task("", total=_planned(options))
        driver = WsDriver(load, probe, progress=lambda turns: bar.update(task, completed=turns))
        outcome = _drive(driver)
    report = _report(options, outcome, load.material.source, probe.origin)
    if options.report is not None:
        reports.write(report, options.report)
    reports.print_report(report, console)
    return _verdict(bars, report, console)


def _planned(options: argparse.Namespace) -> int:
    turns: int = options.users * options.rounds * options.turns
    return turns


def _report(
    options: argparse.Namespace, outcome: Outcome, speech: str, origin: str | None
) -> dict[str, Any]:
    return reports.build(
        outcome,
        users=options.users,
        planned=_planned(options),
        seed=options.seed,
        workload=_workload(options, speech),
        origin=origin,
    )


def _drive(driver: WsDriver) -> Outcome:
    with asyncio.Runner(loop_factory=_fast_loop) as runner:
        return runner.run(driver.run())


def _fast_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


def _show(options: argparse.Namespace, console: Console) -> int:
    files: list[Path] = options.files
    if len(files) > 2:
        raise ConfigError("report takes one or two files")
    found = [(str(path), reports.read(path)) for path in files]
    if len(found) == 1:
        reports.print_report(found[0][1], console)
    else:
        reports.print_comparison(found[0], found[1], console)
    return 0


def _verdict(bars: list[Bar], report: dict[str, Any], console: Console) -> int:
    verdicts = judge(bars, report)
    reports.print_verdicts(verdicts, console)
    return 0 if all(verdict.held for verdict in verdicts) else 1


def _load(options: argparse.Namespace) -> Load:
    url = realtime_url(options.url, options.extensions)
    detection: dict[str, Any] = {"type": options.turn_detection}
    if options.silence_ms is not None:
        if options.turn_detection != "server_vad":
            raise ConfigError("--silence-ms goes with --turn-detection server_vad only")
        detection["silence_duration_ms"] = options.silence_ms
    if options.barge_in + options.backchannel > 1:
        raise ConfigError("--barge-in and --backchannel together are more than 1")
    starts = arrivals(options.arrivals, options.users, random.Random(options.seed))
    plan = Plan(
        turns=options.turns,
        barge_in=options.barge_in,
        backchannel=options.backchannel,
        pause_ns=int(options.pause * NS_PER_S),
        limit_ns=int(options.turn_limit * NS_PER_S),
        turn_detection=detection,
        playback="playback" in options.extensions,
    )
    return Load(
        url, plan, _material(options), starts, options.seed, options.rounds, options.api_key
    )


def _material(options: argparse.Namespace) -> Material:
    if options.speech is None:
        if options.backchannel_speech is not None:
            raise ConfigError("--backchannel-speech goes with --speech")
        return synthesised()
    material = recorded(options.speech, options.backchannel_speech)
    if options.backchannel and not material.backchannels:
        raise ConfigError("--backchannel with --speech needs --backchannel-speech DIR")
    return material


def _workload(options: argparse.Namespace, speech: str) -> dict[str, Any]:
    return {
        "url_path": urllib.parse.urlsplit(options.url).path or "/v1/realtime",
        "turns_per_session": options.turns,
        "rounds": options.rounds,
        "barge_in": options.barge_in,
        "backchannel": options.backchannel,
        "turn_detection": options.turn_detection,
        "silence_ms": options.silence_ms,
        "pause_s": options.pause,
        "turn_limit_s": options.turn_limit,
        "arrivals": options.arrivals,
        "speech": speech,
        "extensions": sorted(set(options.extensions)),
        "player": {"quantum_ms": 20, "pre_roll_ms": 0},
        "network": "real sockets, nothing added",
    }


if __name__ == "__main__":
    sys.exit(main())
