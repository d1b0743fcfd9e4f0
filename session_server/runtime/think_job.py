"""What a response asks of the thinker, in the words of the engines' contract."""

from __future__ import annotations

from collections.abc import Sequence

from engines.base import CameraView, ChatMessage, FunctionSpec, ThinkJob
from session_server.runtime import messages
from session_server.runtime.evidence_text import reported
from session_server.runtime.messages import Generate, PromptMessage


def think_job(request: Generate, bound: int | None) -> ThinkJob:
    """`bound`: tokens that the present load allows; the smaller of two bounds holds."""
    choice, tool = _choice(request)
    bounds = [n for n in (request.max_output_tokens, bound) if n is not None]
    return ThinkJob(
        request.instructions,
        chat(request.messages),
        tuple(FunctionSpec(t.name, t.description, t.parameters) for t in request.tools),
        choice,
        tool,
        min(bounds, default=None),
        request.spoken,
        request.voice,
    )


def chat(prompt: Sequence[PromptMessage]) -> tuple[ChatMessage, ...]:
    """The prompt's messages, with what was found in their pictures."""
    return tuple(
        ChatMessage(
            m.role,
            m.content,
            m.kind,
            m.name,
            m.audio,
            tuple(map(reported, m.pictures)),
            _view(m.camera),
        )
        for m in prompt
    )


def _view(said: messages.CameraView | None) -> CameraView | None:
    if said is None:
        return None
    evidence = reported(said.report) if said.report else None
    return CameraView(evidence, said.age_ms / 1000, said.earlier)


def _choice(request: Generate) -> tuple[str, str | None]:
    """The tool choice; auto where a session's choice cannot be met by the tools that there are."""
    names = {tool.name for tool in request.tools}
    met = {"required": bool(names), "function": request.tool_name in names}
    if met.get(request.tool_choice, True):
        return request.tool_choice, request.tool_name
    return "auto", None
