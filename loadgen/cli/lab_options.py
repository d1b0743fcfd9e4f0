"""Options that the commands of the laboratory share, and what they mean.

Imports nothing heavy: `--help` must be quick.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
