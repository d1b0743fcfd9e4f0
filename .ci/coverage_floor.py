"""Fail when branch coverage of a pure package, or of everything, is below its floor (reads .coverage)."""

from __future__ import annotations

import io
import sys

from coverage import Coverage

FLOORS = {
    "session_server/types/*": 96.0,
    "session_server/core/*": 96.0,
    "session_server/scheduler/*": 96.0,
    "session_server/protocol/*": 96.0,
    "session_server/duplex/core/*": 96.0,
    "*": 80.0,
}


def main() -> int:
    coverage = Coverage()
    coverage.load()
    failed = False
    for pattern, floor in FLOORS.items():
        # raises NoDataError where a pattern names no file: a guard of nothing is no guard
        percent = coverage.report(include=[f"*/{pattern}"], file=io.StringIO())
        verdict = "ok" if percent >= floor else "TOO LOW"
        failed |= percent < floor
        sys.stdout.write(f"{pattern:28s} {percent:6.2f} %  (floor {floor:g} %)  {verdict}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
