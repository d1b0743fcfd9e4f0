"""The commands and their options; what a command does is in the module that it names (`options.module`).

Imports nothing heavy: `--help` must be quick.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from loadgen.arrivals import FORMS

EXTENSIONS = ("playback",)
MODES = ("server_vad", "semantic_vad")
EXIT_CODES = (
    "Exit codes: 0 done; 1 an SLO was missed; 2 wrong arguments or files; 3 no session could be opened; "
    "130 interrupted."
)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Ends the process with code 2 for a wrong option."""
    parser = argparse.ArgumentParser(
        prog="session-loadgen",
        description="Speak to a realtime server, or to a simulated one, as many users who listen, acknowledge and "
        "interrupt; find out how many it holds.",
        epilog=EXIT_CODES,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(_command(commands, "run", "running", "run a load against a server and report it"))
    _add_report(
        _command(commands, "report", "reporting", "show reports, beside each other or as a page")
    )
    return parser.parse_args(argv)


def _command(commands: Any, name: str, module: str, text: str) -> argparse.ArgumentParser:  # noqa: ANN401
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", epilog=EXIT_CODES,
        allow_abbrev=False,
    )  # fmt: skip
    command.set_defaults(module=f"loadgen.cli.{module}")
    return command


def _number(kind: Callable[[str], Any], least: float, most: float) -> Callable[[str], Any]:
    def check(text: str) -> Any:  # noqa: ANN401
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not within {least:g} and {most:g}")
        return value

    check.__name__ = kind.__name__
    return check


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
    add("--turn-detection", choices=MODES, default="server_vad", help="who decides that a turn has ended (default: server_vad)")
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


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="one or two report files"
    )
