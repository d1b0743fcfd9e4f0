"""Two settings of a server compared in one interleaved run: A B B A, so that a machine that drifts favours neither.

Owns the server processes and the load runs, each in a process of its own, one after the other. Blocks of a pair share
their seed. Figures are compared as ratios within a pair (B over A), then put together as geometric means.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadgen.call_reception import CALL_ROWS
from loadgen.lab.report import figure, read as read_report
from loadgen.video_figures import VIDEO_ROWS
from session_server.config import ENV_PREFIX, load
from session_server.types.errors import ConfigError, SessionServerError

FIGURES = (
    "ttfa_ms.p50", "ttfa_ms.p95", "response_ms.p50", "response_ms.p95", "c100", "underrun_ms", "wasted_audio_ratio",
    "goodput_per_s", "errors", "server_cpu_s",
)  # fmt: skip
_LOAD = "load."
_READY_S, _STOP_S = 120.0, 40.0


class BlockFailed(SessionServerError):
    """A server did not come up, or a load run ended with an error. One line."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One side: `settings` are configuration keys and their values in YAML, or `load.NAME`: an option of `run`."""

    name: str
    settings: tuple[tuple[str, str], ...]

    @property
    def environment(self) -> dict[str, str]:
        return {
            ENV_PREFIX + key.upper().replace(".", "__"): value
            for key, value in self.settings
            if not key.startswith(_LOAD)
        }

    @property
    def load_options(self) -> list[str]:
        """Those of this side's load runs."""
        return [
            f"--{key.removeprefix(_LOAD).replace('_', '-')}={value}"
            for key, value in self.settings
            if key.startswith(_LOAD)
        ]


@dataclass(frozen=True, slots=True)
class Block:
    """One load run: arm A or B, users at once, and the seed of its pair."""

    arm: str
    users: int
    seed: int


def arm_of(name: str, settings: Sequence[str]) -> Arm:
    """From `key=value` texts. Raises ConfigError."""
    pairs = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or "." not in key or not value:
            raise ConfigError(f"--{name.lower()} {setting!r}: must be like scheduler.policy=fcfs")
        pairs.append((key, value))
    return Arm(name, tuple(pairs))


def plan(users: Sequence[int], order: str, seed: int) -> list[Block]:
    """`order` is a word of A and B with as many of each; the k-th A and the k-th B are a pair."""
    if set(order) != {"A", "B"} or order.count("A") != order.count("B"):
        raise ConfigError(f"--order {order!r}: must hold as many A as B, like ABBA")
    blocks = []
    for count in users:
        seen = {"A": 0, "B": 0}
        for arm in order:
            blocks.append(Block(arm, count, seed + seen[arm]))
            seen[arm] += 1
    return blocks


def compare(blocks: Sequence[Block], reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For each number of users: every figure of both arms, and its ratios."""
    out: dict[str, Any] = {}
    for users in dict.fromkeys(block.users for block in blocks):
        own = [(b, r) for b, r in zip(blocks, reports, strict=True) if b.users == users]
        arms = {arm: {b.seed: r for b, r in own if b.arm == arm} for arm in "AB"}
        out[str(users)] = {path: _compared(path, arms["A"], arms["B"]) for path in _paths(reports)}
    return out


def _paths(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """What all runs have, and what calls and cameras have beside it if there are some."""
    more = [
        path
        for _, path in (*CALL_ROWS, *VIDEO_ROWS)
        if any(figure(one, path) is not None for one in reports)
    ]
    return [*FIGURES, *more]


def heading(arms: Mapping[str, Arm], load_options: Sequence[str]) -> list[str]:
    """What was compared, a line each: a table without it says nothing a week later."""
    lines = [
        f"{name}: " + " ".join(f"{key}={value}" for key, value in arm.settings)
        for name, arm in arms.items()
    ]
    return [*lines, "load: " + (" ".join(load_options) or "as `run` has it")]


def _compared(
    path: str, a: Mapping[int, Mapping[str, Any]], b: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    firsts, seconds = ([figure(report, path) for report in arm.values()] for arm in (a, b))
    pairs = [(figure(a[seed], path), figure(b[seed], path)) for seed in a if seed in b]
    ratios = [y / x for x, y in pairs if x and y is not None]
    usable = ratios and all(ratio > 0 for ratio in ratios)
    return {
        "a": firsts,
        "b": seconds,
        "a_mean": _mean(firsts),
        "b_mean": _mean(seconds),
        "ratios": [round(ratio, 4) for ratio in ratios],
        "ratio": round(math.exp(statistics.fmean(map(math.log, ratios))), 4) if usable else None,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.fmean(known), 4) if known else None


def require_settings(arms: Mapping[str, Arm], config: Path | None) -> None:
    """Raises ConfigError for a setting that the server would not take: before a load run, not after the first one."""
    for name, arm in arms.items():
        try:
            load(config, os.environ | arm.environment)
        except ConfigError as error:
            raise ConfigError(f"--{name.lower()}: {error}") from None


def run_blocks(
    blocks: Sequence[Block],
    arms: Mapping[str, Arm],
    config: Path | None,
    load_options: Sequence[str],
    begin: Callable[[int, Block], None] = lambda number, block: None,
) -> list[dict[str, Any]]:
    """Raises BlockFailed. Options of `session-loadgen run` but for url, users, seed and report."""
    reports = []
    for number, block in enumerate(blocks):
        begin(number, block)
        with served(arms[block.arm], config) as url:
            options = [*load_options, *arms[block.arm].load_options]
            reports.append(_run(url, block, options))
    return reports


def _run(url: str, block: Block, load_options: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        command = [
            sys.executable, "-m", "loadgen.cli", "run", "--url", url, "--users", str(block.users),
            "--seed", str(block.seed), "--report", str(path), *load_options,
        ]  # fmt: skip
        ended = subprocess.run(command, check=False)
        if not path.is_file():
            raise BlockFailed(f"a load run ended with code {ended.returncode} and without a report")
        return read_report(path)


@contextlib.contextmanager
def served(arm: Arm, config: Path | None) -> Iterator[str]:
    """A server with the arm's settings on a free port, for as long as the block lasts; its URL."""
    port = _free_port()
    command = [sys.executable, "-m", "session_server.cli", "serve", "--port", str(port)]
    command += ["--config", str(config)] if config is not None else []
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, env=os.environ | arm.environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            url = f"http://127.0.0.1:{port}"
            if not _ready(url, process):
                log.seek(0)
                said = log.read().decode(errors="replace").strip().splitlines()
                raise BlockFailed(f"server {arm.name}: {said[-1] if said else 'does not come up'}")
            yield url
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _ready(url: str, process: subprocess.Popen[bytes]) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + _READY_S
    while process.poll() is None and time.monotonic() < until:
        try:
            with opener.open(f"{url}/readyz", timeout=2) as answer:
                if answer.status == 200:
                    return True
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(0.2)
    return False


def write(path: Path, arms: Mapping[str, Arm], blocks: Sequence[Block], compared: dict[str, Any], reports: Sequence[Mapping[str, Any]], load_options: Sequence[str]) -> None:  # fmt: skip
    """Everything, to look at it later."""
    content = {
        "arms": {name: dict(arm.settings) for name, arm in arms.items()},
        "load": list(load_options),
        "users": compared,
        "blocks": [
            {"arm": block.arm, "users": block.users, "seed": block.seed, "report": report}
            for block, report in zip(blocks, reports, strict=True)
        ],
    }
    path.write_text(json.dumps(content, indent=2) + "\n")
