"""Functions that may be called: what a client offers, the core passes on, and a thinker is told."""

from __future__ import annotations

from session_server.types.audio import Value


class Tool(Value, frozen=True):
    """A function that the client offers. `parameters` is a JSON schema, as JSON text."""

    name: str
    description: str
    parameters: str


class ToolChoice(Value, frozen=True):
    """`mode` is none, auto, required or function; `name` is set for function only."""

    mode: str = "auto"
    name: str | None = None
