"""Options that the commands of the laboratory share, and what they mean.

Imports nothing heavy: `--help` must be quick.

The commands and their options; what a command does is in the module that it names (`options.function`).

Imports nothing heavy: `--help` must be quick.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from loadgen.arrivals import FORMS

MODES = ("server_vad", "semantic_vad")


def number(kind: Callable[[str], Any], least: float, most: float) -> Callable[[str], Any]:
    """For `type=`: a value of `kind` within bounds."""

    def check(text: str) -> Any:  # noqa: ANN401
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"must be {_plain(least)} to {_plain(most)}, not {text}"
            )
        return value

    check.__name__ = kind.__name__
    return check


def _plain(bound: float) -> str:
    """As people write it: 1,000,000."""
    return f"{int(bound):,}" if bound == int(bound) else f"{bound:g}"


def share(text: str) -> float:
    """For `type=`: `5%` or `0.05`."""
    number_of, percent = text.strip(), text.strip().endswith("%")
    try:
        value = float(number_of.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share like 5% or 0.05") from None
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not within 0 and 1")
    return value


def size(text: str) -> tuple[int, int]:
    """For `type=`: width and height, like 640x480."""
    width, times, height = text.lower().partition("x")
    if not times or not width.isdecimal() or not height.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a size like 640x480")
    return int(width), int(height)


def names(text: str) -> list[str]:
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError("must be names with commas between them")
    return found


def numbers(kind: Callable[[str], Any], least: float, most: float) -> Callable[[str], list[Any]]:
    one = number(kind, least, most)

    def check(text: str) -> list[Any]:
        return [one(part) for part in names(text)]

    check.__name__ = f"list of {kind.__name__}"
    return check


def add_choice(command: argparse.ArgumentParser) -> None:
    """One candidate."""
    # fmt: off
    add = command.add_argument
    add("--profile", default="qwen3-omni-h200", metavar="NAME", help="costs of the engines: a name in configs/profiles, or a path (default: qwen3-omni-h200)")
    add("--workload", default="mixed", metavar="NAME", help="how users behave: a name in configs/workloads, or a path (default: mixed)")
    add("--policy", default="deadline", metavar="NAME", help="fcfs, liveserve or deadline (default: deadline)")
    add("--chunking", default="adaptive", metavar="RULE", help="stock or adaptive (default: adaptive)")
    # fmt: on


def add_setting(command: argparse.ArgumentParser) -> None:
    """What every simulated run needs beside its sessions, policy and workload."""
    # fmt: off
    add = command.add_argument
    add("--seconds", type=number(float, 1, 1e6), default=400.0, metavar="T", help="simulated seconds (default: 400)")
    add("--warm-up", type=number(float, 0, 1e6), metavar="S", help="seconds at the start that are left out (default: 60, at most a quarter of --seconds)")
    add("--barge-in", type=number(float, 0, 1), metavar="P", help="share of answers that the user interrupts (default: the workload's)")
    add("--seed", type=int, default=0, metavar="S", help="same seed, same report, byte for byte (default: 0)")
    add("--admission", choices=("on", "off"), default="off", help="may the server refuse sessions and turns? (default: off)")
    add("--replicas", type=number(int, 1, 10_000), default=1, metavar="R", help="servers that share the sessions (default: 1)")
    add("--turn-detection", choices=MODES, default="server_vad", help="who decides that a turn has ended (default: server_vad)")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="a scheduler parameter (lead_cap_s=4), network.NAME, workload.NAME, workload.camera.NAME, or a plain field of the run (tokens_run=2); may be repeated")
    add("--report", type=Path, metavar="FILE", help="write the report as JSON")
    # fmt: on


def add_search(command: argparse.ArgumentParser) -> None:
    """Where to look for a knee, and how."""
    # fmt: off
    add = command.add_argument
    add("--seeds", type=number(int, 1, 1000), default=5, metavar="K", help="how many seeds, from --seed on; each must hold by itself (default: 5)")
    add("--jobs", type=number(int, 1, 256), default=1, metavar="J", help="processes (default: 1)")
    add("--start", type=number(int, 1, 1_000_000), default=32, metavar="N", help="sessions to try first (default: 32)")
    add("--step", type=number(int, 1, 1_000_000), default=0, metavar="N", help="how far to move first, then twice as far each time; small where --start is a good guess (default: half of --start)")
    add("--within", type=number(int, 1, 1_000_000), default=1, metavar="N", help="how exactly to find a knee: some number at most so many sessions farther failed (default: 1)")
    add("--most", type=number(int, 1, 1_000_000), default=4096, metavar="N", help="do not look beyond (default: 4096)")
    add("--common", action="store_true", help="look only for the knee of all seeds, not for each one's own: somewhat fewer runs, no spread")
    add("--pooled", action="store_true", help="also find the knee of all seeds' answers taken as one sample")
    add("--around", type=numbers(float, 0.01, 100), default=[], metavar="F,F,..", help="then measure all seeds at these multiples of the knee, none given up early (like 0.8,1.1,1.2)")
    # fmt: on


EXTENSIONS = ("playback",)
CAMERAS = ("none", "static", "object", "drift", "pan", "screen", "clip")
EXIT_CODES = (
    "Exit codes: 0 done; 1 an SLO was missed; 2 wrong arguments or files; 3 no session could be opened; "
    "130 interrupted."
)


EXAMPLES = {
    "run": "session-loadgen run --url 127.0.0.1:8000 --users 8 --turns 25 --barge-in 0.3 --report out.json\n"
    "session-loadgen run --url http://127.0.0.1:8000 --driver webrtc --users 3 --loss 5% --jitter-ms 30\n"
    "session-loadgen run --url 127.0.0.1:8000 --users 12 --camera object --camera-users 4\n"
    "session-loadgen run --url 127.0.0.1:8000 --users 24 --arrivals together --knock-again",
    "simulate": "session-loadgen simulate --sessions 40 --policy deadline --seed 1 --report out.json\n"
    "session-loadgen simulate --sessions 198 --admission on --set lead_cap_s=4",
    "sweep": "session-loadgen sweep --policy fcfs --chunking stock --start 6 --step 2 --seeds 1 --seconds 200 --plot curve.png",
    "compare": "session-loadgen compare --policies fcfs,liveserve,deadline --chunkings stock,adaptive --base fcfs/stock\n"
    "session-loadgen compare --variant 'plain:deadline' --variant 'wide:deadline,lead_cap_s=4' --sessions 60,80",
    "report": "session-loadgen report before.json after.json\n"
    "session-loadgen report before.json after.json --html page.html",
    "ab": "session-loadgen ab --a scheduler.policy=fcfs --b scheduler.policy=deadline --users 8 16 -- --turns 10 --barge-in 0.3",
    "profile": "session-loadgen profile --output mine.yaml && session-loadgen simulate --profile mine.yaml --sessions 8",
    "replay": "session-loadgen replay talks.jsonl",
    "trace": "session-loadgen trace talks.jsonl --output mine.yaml",
}
"""Of each command, a line each; shown by `--help`."""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Ends the process with code 2 for a wrong option."""
    parser = argparse.ArgumentParser(
        prog="session-loadgen",
        description="Speak to a realtime server, or to a simulated one, as many users who listen, acknowledge and\n"
        "interrupt; find out how many it holds.",
        epilog=_epilog("run", "simulate", "sweep"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(_command(commands, "run", "running:run", "run a load against a server and report it"))
    _add_simulate(_command(commands, "simulate", "simulating:run", "run a load in the simulation"))
    _add_sweep(
        _command(
            commands, "sweep", "searches:run_sweep", "find the most sessions that hold the SLO"
        )
    )
    _add_compare(
        _command(commands, "compare", "searches:run_compare", "policies, chunk rules and workloads")
    )
    _add_report(
        _command(
            commands, "report", "reporting:run", "show reports, beside each other or as a page"
        )
    )
    _add_ab(_command(commands, "ab", "running:run_ab", "compare two settings of a server in turns"))
    _add_profile(
        _command(commands, "profile", "profiling:run", "measure engines, to simulate them")
    )
    _add_replay(
        _command(
            commands,
            "replay",
            "records:run_replay",
            "let fresh cores live a record of sessions again",
        )
    )
    _add_trace(
        _command(
            commands, "trace", "records:run_trace", "turn a record of sessions into a workload"
        )
    )
    return parser.parse_args(argv)


def _epilog(*commands: str) -> str:
    lines = "\n".join(EXAMPLES[name] for name in commands).split("\n")
    return "examples:\n" + "".join(f"  {line}\n" for line in lines) + f"\n{EXIT_CODES}"


class _Version(argparse.Action):
    """Asks for the version only when it is wanted: that takes longer than all the rest of the help."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from importlib import metadata

        try:
            found = metadata.version("session-server")
        except metadata.PackageNotFoundError:
            found = "(not installed)"
        sys.stdout.write(f"session-loadgen {found}\n")
        parser.exit()


def _command(commands: Any, name: str, function: str, text: str) -> argparse.ArgumentParser:  # noqa: ANN401
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", epilog=_epilog(name),
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    command.set_defaults(function=f"loadgen.cli.{function}")
    return command


def _add_run(run: argparse.ArgumentParser) -> None:
    # fmt: off
    add = run.add_argument
    add("--url", required=True, help="the server: HOST:PORT, or a URL like ws://127.0.0.1:8000/v1/realtime; with --driver webrtc like http://127.0.0.1:8000")
    add("--driver", choices=("ws", "webrtc"), default="ws", help="how users connect (default: ws)")
    add("--loss", type=share, metavar="S", help="share of RTP packets that are lost on the way, each way, like 5%% or 0.05; webrtc only (default: 0)")
    add("--jitter-ms", type=number(float, 0, 1000), metavar="J", help="each RTP packet is late by 0 to 2 J milliseconds; webrtc only (default: 0)")
    add("--users", type=number(int, 1, 1000), default=1, metavar="N", help="users at once (default: 1)")
    add("--turns", type=number(int, 1, 100_000), default=5, metavar="T", help="turns of each user in a session (default: 5)")
    add("--rounds", type=number(int, 1, 100_000), default=1, metavar="R", help="sessions of each user, one after another (default: 1)")
    add("--workload", metavar="NAME", help="users of a scenario, by name or file: its rests, interruptions, nods, noises, hang-ups (default: as the options say)")
    add("--barge-in", type=number(float, 0, 1), metavar="P", help="share of answers that the user interrupts (default: 0, or the workload's)")
    add("--backchannel", type=number(float, 0, 1), metavar="P", help='share of answers into which the user says "mhm" (default: 0)')
    add("--seed", type=int, default=0, metavar="S", help="same seed, same behaviour of the users (default: 0)")
    add("--turn-detection", choices=MODES, default="server_vad", help="who decides that a turn has ended (default: server_vad)")
    add("--silence-ms", type=number(int, 50, 10_000), metavar="M", help="silence that ends a turn, server_vad only (default: the server's)")
    add("--pause", type=number(float, 0, 600), metavar="S", help="mean pause between an answer and the next question, in seconds (default: 1)")
    add("--turn-limit", type=number(float, 1, 3600), metavar="S", help="longest wait for the server, in seconds (default: 30)")
    add("--arrivals", default="ramp:2", metavar="FORM", help=f"{FORMS} (default: ramp:2)")
    add("--speech", type=Path, metavar="DIR", help="wav or flac files to speak; NAME.txt beside NAME.wav has the words (default: synthesised)")
    add("--backchannel-speech", type=Path, metavar="DIR", help="recordings of backchannels, with --speech")
    add("--camera", choices=CAMERAS, metavar="KIND", help=f"users have a camera, which shows: {', '.join(CAMERAS)}; none: those who would have one have it off (default: nobody has one, or as in the workload)")
    add("--camera-fps", type=number(float, 0.1, 240), metavar="F", help="frames a second of each camera (default: 15)")
    add("--camera-size", type=size, metavar="WxH", help="size of the frames (default: 640x480)")
    add("--camera-users", type=number(int, 0, 1000), metavar="N", help="how many of the users have one, evenly spread (default: all)")
    add("--camera-path", metavar="FILE", help="the video file of a clip; a photo for static, object, drift and pan (default: a drawn room)")
    add("--knock-again", action="store_true", help="whoever is refused comes again when the server says (default: the user is lost, an error)")
    add("--extensions", action="append", choices=EXTENSIONS, default=[], help="opt in to an extension of the protocol")
    add("--api-key", metavar="KEY", help="sent as bearer key")
    add("--server-pid", type=int, metavar="PID", help="where to read CPU and memory if /metrics cannot be reached")
    add("--report", type=Path, metavar="FILE", help="write the report as JSON")
    add("--slo", type=Path, metavar="FILE", help="YAML of bars like `ttfa_ms.p95: {max: 1500}`; a missed one exits with 1")
    # fmt: on


def _add_simulate(simulate: argparse.ArgumentParser) -> None:
    add_choice(simulate)
    # fmt: off
    simulate.add_argument("--sessions", type=number(int, 1, 1_000_000), default=32, metavar="N", help="live sessions (default: 32)")
    simulate.add_argument("--slo", type=Path, metavar="FILE", help="YAML of bars like `response_ms.p90: {max: 500}`; a missed one exits with 1")
    # fmt: on
    add_setting(simulate)


def _add_sweep(sweep: argparse.ArgumentParser) -> None:
    add_choice(sweep)
    add_search(sweep)
    add_setting(sweep)
    sweep.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="P90, P99, C100 and goodput against sessions, as PNG",
    )


def _add_compare(compare: argparse.ArgumentParser) -> None:
    # fmt: off
    add = compare.add_argument
    add("--profiles", type=names, default=["qwen3-omni-h200"], metavar="A,B", help="default: qwen3-omni-h200")
    add("--workloads", type=names, default=["mixed"], metavar="A,B", help="default: mixed")
    add("--policies", type=names, metavar="A,B", help="default: fcfs,liveserve,deadline; with --variant none")
    add("--chunkings", type=names, default=["stock", "adaptive"], metavar="A,B", help="default: stock,adaptive")
    add("--variant", action="append", default=[], metavar="NAME:POLICY[,RULE][,X=V..]", help="one more candidate, for an ablation, like `wide:deadline,adaptive,lead_cap_s=4`; may be repeated")
    add("--base", metavar="NAME", help="the candidate that ratios refer to, like fcfs/stock (default: the first)")
    add("--sessions", type=numbers(int, 1, 1_000_000), default=[], metavar="N,N,..", help="compare at these numbers of sessions instead of looking for the knee")
    # fmt: on
    add_search(compare)
    add_setting(compare)
    add("--markdown", type=Path, metavar="FILE", help="write the tables as Markdown")
    add("--plot", type=Path, metavar="FILE", help="draw the comparison as PNG")


def _add_report(report: argparse.ArgumentParser) -> None:
    # fmt: off
    add = report.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="reports of run, simulate, sweep or compare")
    add("--html", type=Path, metavar="FILE", help="write one page with its plots inside")
    add("--markdown", type=Path, metavar="FILE", help="write Markdown, its plots as PNG files beside it")
    # fmt: on


def _add_ab(ab: argparse.ArgumentParser) -> None:
    # fmt: off
    ab.usage = "session-loadgen ab --a KEY=VALUE ... --b KEY=VALUE ... --users N ... [options] [-- options of run]"
    add = ab.add_argument
    add("--a", nargs="+", required=True, metavar="KEY=VALUE", help="settings of the first server, like scheduler.policy=fcfs, or of its load, like load.camera=none")
    add("--b", nargs="+", required=True, metavar="KEY=VALUE", help="settings of the second; ratios are second over first")
    add("--users", type=number(int, 1, 1000), nargs="+", default=[8], metavar="N", help="users at once; each number is compared by itself (default: 8)")
    add("--order", default="ABBA", metavar="WORD", help="order of the load runs (default: ABBA)")
    add("--seed", type=int, default=0, metavar="S", help="seed of the first pair; the next has the next one (default: 0)")
    add("--config", type=Path, metavar="FILE", help="configuration of both servers")
    add("--report", type=Path, metavar="FILE", help="write all figures and reports as JSON")
    add("load", nargs="*", metavar="OPTION", help="options of `run`, behind `--`: turns, barge-in, silence-ms ...")
    # fmt: on


def _add_profile(profile: argparse.ArgumentParser) -> None:
    # fmt: off
    add = profile.add_argument
    add("--config", type=Path, metavar="FILE", help="the server's configuration, whose engines are measured (default: the CPU engines)")
    add("--output", type=Path, required=True, metavar="FILE", help="where to write the profile; simulate --profile FILE reads it")
    add("--name", help="the profile's name (default: the file's)")
    add("--repeats", type=number(int, 1, 1000), default=7, metavar="N", help="how often each step is timed (default: 7)")
    add("--served", type=Path, metavar="REPORT", help="do not measure: take what open sessions cost the stages from this report of `run`; needs --base and --workload")
    add("--base", type=Path, metavar="FILE", help="the measured profile that learns, with --served")
    add("--workload", type=Path, metavar="TRACE", help="the trace of the served run, with --served")
    add("--time", choices=("wall", "cpu"), default="wall", help="cpu: CPU time of the engine's thread, for CPU engines on a machine that is not quiet (default: wall)")
    # fmt: on


def _add_replay(replay: argparse.ArgumentParser) -> None:
    replay.add_argument(
        "file", type=Path, metavar="RECORD", help="a server's `observability.record_file`"
    )


def _add_trace(trace: argparse.ArgumentParser) -> None:
    _add_replay(trace)
    trace.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="where to write the workload (default: print it)",
    )
    trace.add_argument("--name", help="the workload's name (default: the record's)")
