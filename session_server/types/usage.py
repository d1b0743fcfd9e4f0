"""Token counts of one response, as the engines report them and `response.done` shows them."""

from __future__ import annotations

from session_server.types.audio import Value


class TokenUsage(Value, frozen=True):
    """Input is what the prompt holds; `input_cached` of it was already in the engine's memory."""

    input_text: int = 0
    input_audio: int = 0
    input_cached: int = 0
    output_text: int = 0
    output_audio: int = 0
