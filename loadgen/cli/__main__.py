"""`python -m loadgen.cli`: the same as the `session-loadgen` command."""

from __future__ import annotations

import sys

from loadgen.cli import main

if __name__ == "__main__":
    sys.exit(main())
