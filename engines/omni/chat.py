"""A conversation as the tokens of an Omni thinker, with places for the sounds and pictures in it.

Owns the chat template and the tokenizer. Every position has an *identity*: its token, or for a place in a sound or a picture a negative
number made of that and the place, so that slots that know a conversation can be compared with it. What a user or a tool
says never becomes a control token. Trimming drops whole messages from the old end (`engines.prompt`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines.base import EmbeddedPicture, ThinkJob
from engines.omni.stage_payloads import EmbeddedImage, Layout, Span
from engines.prompt import first_kept, opens, schema_of
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool

DEFAULT_INSTRUCTIONS = (
    "You are a helpful voice assistant. Answer briefly, in plain words that can be spoken."
)
_TOOLS = """

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{functions}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


@dataclass(frozen=True, slots=True)
class Manners:
    """What differs between families: control tokens of a `sound` and around it, the same of a picture, and what the system prompt
    begins with (`own`)."""

    sound: str
    sound_start: str
    sound_end: str
    picture: str
    picture_start: str
    picture_end: str
    own: str = ""


QWEN3 = Manners(
    "<|audio_pad|>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<|image_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
)


@dataclass(slots=True)
class Prompt:
    """`tokens` and `identities` go together; `user`: positions of user messages; `sounds`: position, tokens, samples; `pictures`: position
    and picture."""

    tokens: list[int] = field(default_factory=list)
    identities: list[int] = field(default_factory=list)
    user: list[bool] = field(default_factory=list)
    sounds: list[tuple[int, int, bytes]] = field(default_factory=list)
    pictures: list[tuple[int, EmbeddedImage]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, tokens: Sequence[int], user: bool = False) -> None:
        self.tokens += tokens
        self.identities += tokens
        self.user += [user] * len(tokens)

    def add_sound(self, pcm: bytes, token: int, count: int) -> None:
        self.sounds.append((len(self), count, pcm))
        self._add_places(pcm, b"sound", token, count, True)

    def add_picture(self, picture: EmbeddedPicture, token: int, user: bool) -> None:
        """Raises ValueError for a picture that was not made for this kind of thinker."""
        sight = picture.payload
        if not isinstance(sight, EmbeddedImage):
            raise ValueError("the picture comes from a vision stage of another kind")
        self.pictures.append((len(self), sight))
        self._add_places(picture.mark.encode(), b"picture", token, picture.tokens, user)

    def _add_places(self, what: bytes, kind: bytes, token: int, count: int, user: bool) -> None:
        named = hashlib.blake2b(what, digest_size=8, person=kind)
        digest = int.from_bytes(named.digest())
        self.tokens += [token] * count
        self.identities += [-((digest << 20) + place + 1) for place in range(count)]
        self.user += [user] * count

    def senses_within(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The parts of sounds and pictures in these places: first, and one past the last."""
        all_of = [(at, at + count) for at, count, _ in self.sounds]
        all_of += [(span.at, span.end) for span in self.layout().spans]
        parts = [(max(first, begin), min(last, end)) for first, last in all_of]
        return [(first, last) for first, last in parts if first < last]

    def layout(self) -> Layout:
        return Layout(tuple(Span(at, seen.rows, seen.columns) for at, seen in self.pictures))

    def user_layout(self) -> Layout:
        """Of the user's messages alone, one after the other."""
        spans, before, counted = [], 0, 0
        for at, seen in self.pictures:
            before += sum(self.user[counted:at])
            counted = at
            if self.user[at]:
                spans.append(Span(before, seen.rows, seen.columns))
        return Layout(tuple(spans))

    def join(self, other: Prompt) -> None:
        shift = len(self)
        self.sounds += [(at + shift, count, pcm) for at, count, pcm in other.sounds]
        self.pictures += [(at + shift, seen) for at, seen in other.pictures]
        self.tokens += other.tokens
        self.identities += other.identities
        self.user += other.user


class Chat:
    """Renders jobs. `sound_tokens` says how many tokens a sound is."""

    def __init__(
        self, folder: Path, manners: Manners, sound_tokens: Callable[[bytes], int]
    ) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._sound_tokens = sound_tokens
        special = sorted(self._tokenizer.get_added_vocab(), key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, special)) or r"(?!)")
        single = self._tokenizer.convert_tokens_to_ids
        self._own = manners.own
        self._sound, self._sound_start, self._sound_end = map(
            single, (manners.sound, manners.sound_start, manners.sound_end)
        )
        self._picture, self._picture_start, self._picture_end = map(
            single, (manners.picture, manners.picture_start, manners.picture_end)
        )
        self.end: int = single("<|im_end|>")
        self.ends = {self.end, single("<|endoftext|>")}
        self._start: int = single("<|im_start|>")

    @property
    def unspoken(self) -> list[int]:
        """Control tokens that an answer never holds."""
        kept = {single for single in self._tokenizer.all_special_ids if single not in self.ends}
        senses = {self._sound, self._sound_start, self._sound_end}
        senses |= {self._picture, self._picture_start, self._picture_end}
        return sorted(kept | senses | {self._start})

    @property
    def size(self) -> int:
        return len(self._tokenizer)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def token(self, text: str) -> int:
        """The one token that this is. Raises ValueError when it is not one."""
        found: int | None = self._tokenizer.convert_tokens_to_ids(text)
        if found is None:
            raise ValueError(f"the tokenizer has no token {text}")
        return found

    def render(self, job: ThinkJob, room: int) -> Prompt:
        """The job's prompt in at most `room` tokens. Raises ValueError when the last message alone is longer."""
        prompt = self._message("system", self._system(job))
        opening = self.opening("user" if job.warm else "assistant")
        messages, can_open = self._units(job.messages)
        left = room - len(prompt) - len(opening)
        kept = messages[first_kept([len(m) for m in messages], left, can_open) :]
        for message in kept:
            prompt.join(message)
        prompt.add(opening)
        if len(prompt) > room:
            raise ValueError(f"the prompt has {len(prompt)} tokens, there is room for {room}")
        return prompt

    def _units(self, messages: Sequence[PromptMessage]) -> tuple[list[Prompt], list[bool]]:
        """What is kept or dropped as a whole, and whether a conversation may begin with it. What the camera shows goes with the user's
        words before it."""
        units: list[Prompt] = []
        can_open: list[bool] = []
        asked = False
        for message in messages:
            rendered = self._render(message)
            if asked and message.camera is not None:
                units[-1].join(rendered)
            else:
                units.append(rendered)
                can_open.append(opens(message))
            asked = message.role == "user" and message.kind == "message"
        return units, can_open

    def opening(self, role: str) -> list[int]:
        return [self._start, *self.encode(f"{role}\n")]

    def forced_call(self, job: ThinkJob) -> str:
        """How an answer begins that has to be a call; empty: it need not be one."""
        if job.warm or job.tool_choice not in ("required", "function"):
            return ""
        named = f'"{job.tool_name}", "arguments": ' if job.tool_choice == "function" else ""
        return f'<tool_call>\n{{"name": {named}'

    def _system(self, job: ThinkJob) -> str:
        text = self._defused(job.instructions.strip()) or DEFAULT_INSTRUCTIONS
        text = f"{self._own}\n{text}" if self._own else text
        return text + _tools(job.tools) if job.tools else text

    def _render(self, message: PromptMessage) -> Prompt:
        content = self._defused(message.content)
        if message.kind == "call":
            call = (
                f'<tool_call>\n{{"name": "{message.name}", "arguments": {content}}}\n</tool_call>'
            )
            return self._message("assistant", call)
        if message.kind == "result":
            return self._message("user", f"<tool_response>\n{content}\n</tool_response>")
        if isinstance(message.audio, bytes) and message.audio:
            return self._heard(message.audio)
        role = message.role if message.role in ("system", "user", "assistant") else "user"
        if message.images:
            return self._seen(role, message)
        return self._message(role, content)

    def _message(self, role: str, text: str) -> Prompt:
        prompt = Prompt()
        tokens = [self._start, *self.encode(f"{role}\n{text}"), self.end, *self.encode("\n")]
        prompt.add(tokens, user=role == "user")
        return prompt

    def _heard(self, pcm: bytes) -> Prompt:
        prompt = Prompt()
        prompt.add([*self.opening("user"), self._sound_start], user=True)
        prompt.add_sound(pcm, self._sound, self._sound_tokens(pcm))
        prompt.add([self._sound_end, self.end, *self.encode("\n")], user=True)
        return prompt

    def _seen(self, role: str, message: PromptMessage) -> Prompt:
        """Each picture stands where its mark is."""
        shown = {picture.mark: picture for picture in message.images}
        marks = "|".join(map(re.escape, shown))
        pieces = re.split(rf"\[Picture: ({marks})\]|({marks})", message.content)
        prompt, user = Prompt(), role == "user"
        prompt.add(self.opening(role), user)
        for number, piece in enumerate(pieces):
            if number % 3 == 0:
                prompt.add(self.encode(self._defused(piece)) if piece else [], user)
            elif piece:
                prompt.add([self._picture_start], user)
                prompt.add_picture(shown[piece], self._picture, user)
                prompt.add([self._picture_end], user)
        prompt.add([self.end, *self.encode("\n")], user)
        return prompt

    def _defused(self, text: str) -> str:
        """Text in which no control token is spelled out."""
        return self._control.sub(lambda found: found.group()[0] + " " + found.group()[1:], text)


def _tools(tools: Sequence[Tool]) -> str:
    functions = [
        json.dumps(
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": schema_of(tool.parameters),
                },
            }
        )
        for tool in tools
    ]
    return _TOOLS.format(functions="\n".join(functions))


class TextStream:
    """Tokens to text as they come, holding back the bytes of an unfinished character."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._tokens: list[int] = []

    def push(self, token: int) -> str:
        self._tokens.append(token)
        text = self._chat.decode(self._tokens)
        if text.endswith("\N{REPLACEMENT CHARACTER}") and len(self._tokens) < 4:
            return ""
        self._tokens.clear()
        return text
