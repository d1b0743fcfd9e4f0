"""`session-loadgen COMMAND`: speak to a server as many users, or to a simulated one, and say how it felt.

Parses, calls what does the work, prints. A command's module is imported only when that command runs, so that help is
quick and plots are asked for by nobody who draws none.

Exit codes: 0 done; 1 an SLO was missed; 2 wrong arguments or files; 3 no session could be opened; 130 interrupted.
"""

from __future__ import annotations

import importlib
import socket
import sys
from collections.abc import Sequence

from session_server.process.threads import one_blas_thread

one_blas_thread()

from rich.console import Console  # noqa: E402

from loadgen.cli.parser import parse  # noqa: E402
from session_server.types.errors import ConfigError, SessionServerError  # noqa: E402

OK, MISSED, WRONG, FAILED, INTERRUPTED = 0, 1, 2, 3, 130

PIPED_WIDTH = 160
"""Columns of what goes into a file or another program."""


def main(argv: Sequence[str] | None = None) -> int:
    """The console script."""
    options = parse(sys.argv[1:] if argv is None else argv)
    console = Console(stderr=True, emoji=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    try:
        module, _, function = options.function.partition(":")
        code: int = getattr(importlib.import_module(module), function)(options, console)
    except ConfigError as fault:
        console.print(f"session-loadgen: {fault}", markup=False, soft_wrap=True)
        return WRONG
    except SessionServerError as fault:
        console.print(f"session-loadgen: {fault}", markup=False, soft_wrap=True)
        return FAILED
    except (ConnectionError, TimeoutError, socket.gaierror) as fault:
        console.print(f"session-loadgen: {fault}", markup=False, soft_wrap=True)
        return FAILED
    except OSError as fault:  # a file that cannot be read or written
        console.print(f"session-loadgen: {fault}", markup=False, soft_wrap=True)
        return WRONG
    except KeyboardInterrupt:
        console.print("session-loadgen: interrupted; no report was written", markup=False)
        return INTERRUPTED
    return code
