"""From conversation items to the messages of a prompt.

Invariants: of an assistant's speech only what was heard enters (items already hold just that; for an answer that
still plays the caller passes the heard part); an unfinished call never enters; no result without its call, whatever
was deleted, inserted or trimmed; empty messages are left out. At most `bound` items, the most recent ones.

For a thinker that hears, each part of a user item is a message of its own, and a part of audio names its sound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from session_server.core.actions import PromptMessage, UserAudio
from session_server.core.items import (
    Content,
    FunctionCall,
    FunctionCallOutput,
    ImageContent,
    InputAudioContent,
    Item,
    ItemStatus,
    Message,
    OutputAudioContent,
    Role,
    TextContent,
)


def prompt_messages(
    items: Iterable[Item], bound: int, heard: Mapping[str, str], natively: bool = False
) -> tuple[PromptMessage, ...]:
    """Messages of the last items, at most `bound`. `heard`: item id -> text heard so far, for items in progress.
    `natively`: the thinker hears the user's audio itself.

    What is left out grows in steps of half the bound, so that the prompts of a long conversation keep a common
    beginning, which engines need not read again.
    """
    messages: list[PromptMessage] = []
    calls: dict[str, str] = {}
    kept = list(items)
    if len(kept) > bound:
        step = max(1, bound // 2)
        kept = kept[-(-(len(kept) - bound) // step) * step :]
    for item in kept:
        match item:
            case Message(role=Role.USER) if natively:
                messages.extend(_parts(item))
            case Message():
                message = _message(item, heard)
                if message is not None:
                    messages.append(message)
            case FunctionCall(status=ItemStatus.COMPLETED):
                calls[item.call_id] = item.name
                messages.append(
                    PromptMessage("assistant", item.arguments, "call", item.name, item.call_id)
                )
            case FunctionCall():
                pass
            case FunctionCallOutput():
                name = calls.get(item.call_id)
                if name is not None:
                    messages.append(
                        PromptMessage("tool", item.output, "result", name, item.call_id)
                    )
    return tuple(messages)


def user_message(text: str, audio: UserAudio | None = None) -> PromptMessage:
    """A user turn that is no item yet."""
    return PromptMessage(Role.USER.value, text.strip(), audio=audio)


def _parts(item: Message) -> Iterator[PromptMessage]:
    for index, part in enumerate(item.content):
        text = _text(part).strip()
        if isinstance(part, InputAudioContent):
            yield user_message(text, UserAudio(part.start_sample, part.end_sample, item.id, index))
        elif text:
            yield PromptMessage(Role.USER.value, text, pictures=_reports([part]))


def _message(item: Message, heard: Mapping[str, str]) -> PromptMessage | None:
    text = heard.get(item.id)
    if text is None:
        text = "\n".join(part for part in map(_text, item.content) if part)
    text = text.strip()
    if not text:
        return None
    cut = item.role is Role.ASSISTANT and item.status is not ItemStatus.COMPLETED
    return PromptMessage(item.role.value, text, interrupted=cut, pictures=_reports(item.content))


def _reports(content: Iterable[Content]) -> tuple[str, ...]:
    return tuple(part.report for part in content if isinstance(part, ImageContent) and part.report)


def _text(content: Content) -> str:
    match content:
        case TextContent():
            return content.text
        case InputAudioContent() | OutputAudioContent():
            return content.transcript or ""
        case ImageContent():
            return f"[Picture: {content.seen}]" if content.seen else ""
