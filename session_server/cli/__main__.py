"""`python -m session_server.cli`: the same as the `session-server` command."""

from __future__ import annotations

import sys

from session_server.cli import main

if __name__ == "__main__":
    sys.exit(main())
