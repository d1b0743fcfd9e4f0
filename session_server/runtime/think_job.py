"""What a response asks of the thinker, in the words of the engines' contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from engines.base import (
    PICTURE_MARK,
    CameraView,
    ChatMessage,
    EmbeddedPicture,
    FunctionSpec,
    ThinkJob,
)
from session_server.runtime import messages
from session_server.runtime.evidence_text import reported
from session_server.runtime.messages import Generate, PromptMessage

NO_PICTURES: Mapping[str, EmbeddedPicture] = MappingProxyType({})

_NONE: tuple[EmbeddedPicture, ...] = ()
_NOT_KEPT = "it is no longer kept"

Known = Mapping[str, EmbeddedPicture]
"""The session's embedded pictures by their marks."""


def think_job(request: Generate, bound: int | None, known: Known = NO_PICTURES) -> ThinkJob:
    """`bound`: tokens that the present load allows; the smaller of two bounds holds."""
    choice, tool = _choice(request)
    bounds = [n for n in (request.max_output_tokens, bound) if n is not None]
    return ThinkJob(
        request.instructions,
        chat(request.messages, known),
        tuple(FunctionSpec(t.name, t.description, t.parameters) for t in request.tools),
        choice,
        tool,
        min(bounds, default=None),
        request.spoken,
        request.voice,
    )


def chat(prompt: Sequence[PromptMessage], known: Known = NO_PICTURES) -> tuple[ChatMessage, ...]:
    """The prompt's messages, with what was found in their pictures, and with the pictures for a thinker that sees."""
    return tuple(_message(m, known) for m in prompt)


def _message(m: PromptMessage, known: Known) -> ChatMessage:
    content, images = m.content, _NONE
    if m.pictures or m.camera is not None:  # else whatever looks like a mark was typed
        content, images = _marked(m.content, known)
    found = tuple(map(reported, m.pictures))
    return ChatMessage(m.role, content, m.kind, m.name, m.audio, found, _view(m.camera), images)


def _marked(content: str, known: Known) -> tuple[str, tuple[EmbeddedPicture, ...]]:
    """The text, and the pictures whose marks stand in it."""
    marks = dict.fromkeys(PICTURE_MARK.findall(content))
    for mark in marks:
        if mark not in known:
            content = content.replace(mark, _NOT_KEPT)
    return content, tuple(known[mark] for mark in marks if mark in known)


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
