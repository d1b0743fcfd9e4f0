"""The command line: `session-server COMMAND`. Parses, calls, prints; decides nothing.

Exit codes: 0 done; 1 it was tried and did not work; 2 a wrong option, setting or missing model file (one line on
stderr, no traceback unless `--debug`); 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from session_server.process.threads import one_blas_thread

one_blas_thread()

from session_server.cli.parser import parse  # noqa: E402
from session_server.types.errors import ConfigError, ModelsMissing, SessionServerError  # noqa: E402

__all__ = ["main"]

OK, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        code: int = options.run(options)
        return code
    except (ConfigError, ModelsMissing) as error:
        return _say(error, WRONG, options.debug)
    except SessionServerError as error:
        return _say(error, FAILED, options.debug)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return _say(error, FAILED, options.debug)


def _say(error: Exception, code: int, debug: bool) -> int:
    if debug:
        raise error
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, SessionServerError):
        text = f"{type(error).__name__}: {text} (--debug shows where)"
    sys.stderr.write(f"session-server: {text}\n")
    return code
