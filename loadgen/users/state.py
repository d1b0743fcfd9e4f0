"""The states of a virtual user, and how long it stays in them; `user` has what leads from one to the other."""

from __future__ import annotations

import enum

from session_server.types.audio import NS_PER_MS, NS_PER_S

CONNECT_NS = 10 * NS_PER_S
QUIET_NS = 10 * NS_PER_S
"""A user who wants to speak waits at most so long until nothing sounds."""
OWN_TAIL_NS = 2500 * NS_PER_MS
"""An answer that the server stops this soon after the user's last word fell into a pause of the question."""
FIRST_GUESS_NS = 3 * NS_PER_S
"""How long an answer will be, before one was heard."""


class State(enum.Enum):
    CONNECTING = "connecting"
    PAUSING = "pausing"
    ASKING = "asking"
    WAITING = "waiting"
    LISTENING = "listening"
    DONE = "done"
