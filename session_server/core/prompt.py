"""Prompts: from conversation items to what the engines get when an answer begins.

Engines also get one when an answer may begin soon. For a thinker that hears, each part of a user
item is a message of its own, and a part of audio names its sound. Of the camera a prompt holds what
it shows when the answer begins.

Invariants: of an assistant's speech only what was heard enters (final items hold just that; for an
answer that still plays the caller passes the heard part); an unfinished call never enters; no
result without its call, whatever was deleted, inserted or trimmed; empty messages are left out. At
most `bound` items enter, the most recent ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from session_server.core.actions import StartGeneration, WarmPrefix
from session_server.core.camera import Camera
from session_server.core.context import Context
from session_server.core.conversation import (
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
from session_server.core.response import Response
from session_server.core.spoken_answers import SpokenAnswers
from session_server.core.video_window import Commentary
from session_server.types.prompt import PromptMessage, UserAudio
from session_server.types.vision import VisualEvidence


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
            yield PromptMessage(Role.USER.value, text, pictures=_evidence([part]))


def _message(item: Message, heard: Mapping[str, str]) -> PromptMessage | None:
    text = heard.get(item.id)
    if text is None:
        text = "\n".join(part for part in map(_text, item.content) if part)
    text = text.strip()
    if not text:
        return None
    cut = item.role is Role.ASSISTANT and item.status is not ItemStatus.COMPLETED
    return PromptMessage(item.role.value, text, interrupted=cut, pictures=_evidence(item.content))


def _evidence(content: Iterable[Content]) -> tuple[VisualEvidence, ...]:
    found = (part.evidence for part in content if isinstance(part, ImageContent))
    return tuple(evidence for evidence in found if evidence is not None)


def _text(content: Content) -> str:
    match content:
        case TextContent():
            return content.text
        case InputAudioContent() | OutputAudioContent():
            return content.transcript or ""
        case ImageContent():
            return f"[Picture: {content.seen}]" if content.seen else ""


class Prompting:
    """Of one session. `live`: its responses that are not over, by id."""

    def __init__(
        self,
        context: Context,
        camera: Camera,
        spoken: SpokenAnswers,
        live: Mapping[str, Response],
    ) -> None:
        self._context = context
        self._camera = camera
        self._commentary = Commentary(context, camera.window)
        self._spoken = spoken
        self._live = live

    def start(self, response: Response, turn: PromptMessage | None) -> None:
        """Hand the prompt to the engine. `turn`: one that is no item yet (a draft's)."""
        wanted, own = response.plan, response.plan.input_items
        items = self._context.conversation if own is None else map(self._as_known, own)
        messages = self._messages(items)
        if turn is not None:
            messages = (*messages, turn)
        if own is None:
            messages = self._with_camera(response, messages)
        self._context.emit(
            StartGeneration(
                response_id=response.id,
                lane=response.lane,
                epoch=response.epoch,
                instructions=wanted.instructions,
                messages=messages,
                tools=wanted.tools,
                tool_choice=wanted.tool_choice,
                modality=wanted.modality,
                voice=wanted.voice,
                speed=wanted.speed,
                max_output_tokens=wanted.max_output_tokens,
                turn_end_ns=response.turn_end_ns,
            )
        )

    def _as_known(self, item: Item) -> Item:
        """An item of the conversation that a response was given as its input, with what has become known of it since."""
        now = self._context.conversation.get(item.id)
        same = isinstance(now, Message) and isinstance(item, Message) and _bare(now) == _bare(item)
        return now if now is not None and same else item

    def warm(self, words: str = "") -> None:
        """Let the engine read the conversation so far, and the user's `words` so far, while the user still speaks."""
        context, settings = self._context, self._context.settings
        said, work_id = self._messages(context.conversation), context.new_id("work")
        if words:
            said = (*said, user_message(words))
        tools, choice = settings.tools, settings.tool_choice
        context.emit(WarmPrefix(work_id, settings.instructions, said, tools, choice))

    def _messages(self, items: Iterable[Item]) -> tuple[PromptMessage, ...]:
        heard = {}
        for response in self._live.values():
            if response.output.message_id is not None and not response.plan.out_of_band:
                heard[response.output.message_id] = self._spoken.heard_text(response)
        bound, natively = self._context.params.prompt_items, self._context.settings.hearing.natively
        return prompt_messages(items, bound, heard, natively)

    # -- the camera

    def _with_camera(
        self, response: Response, messages: tuple[PromptMessage, ...]
    ) -> tuple[PromptMessage, ...]:
        window = self._camera.window
        if not response.change:
            return window.shown(messages, response.heard_until)
        view, line = window.view()
        told = PromptMessage(Role.SYSTEM.value, f"{response.change}\n{line}", camera=view)
        return (*messages, told)

    def used_camera(self, response: Response) -> None:
        """An answer begins for good, with what the camera shows: that is no news any more."""
        if not self._camera.is_on or response.plan.input_items is not None:
            return
        self._commentary.told()
        evidence = self._camera.window.of_turn(response.heard_until)
        if evidence is not None:
            age_s = self._camera.window.age_ms(evidence) / 1000
            self._context.count("video_evidence_age_seconds", None, age_s)

    def answer_over(self) -> None:
        """The user has heard an answer to its end."""
        self._commentary.rest()

    def news(self) -> str | None:
        """What the camera shows that the user was not told of; asked while nobody speaks, and told from here on."""
        return self._commentary.due()


def _bare(message: Message) -> tuple[Content, ...]:
    """Its content without what the engines find out."""
    return tuple(map(_unknown, message.content))


def _unknown(part: Content) -> Content:
    match part:
        case ImageContent():
            return replace(part, seen="", evidence=None)
        case InputAudioContent():
            return replace(part, transcript=None)
        case _:
            return part
