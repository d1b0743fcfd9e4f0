"""A job as vLLM's input: the model's tokens, and the grammar of a forced tool call.

The tokens follow the model's own chat template. When they do not fit, whole messages go from the
old end, as everywhere (`engines.prompt`); instructions, tools and examples stay.

The grammar is for vLLM's structured outputs (backend `guidance`, which reads Lark). It allows the
same text as everywhere: `<tool_call>{"name": ..., "arguments": ...}</tool_call>`, the arguments
valid for the tool's schema, which is narrowed first (`engines.cpu.grammar`) so that a call comes to
an end.

Invariants: what a user wrote never becomes a control token: the names of such tokens are broken up
in all text that comes from outside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from engines.base import ThinkJob
from engines.cpu.grammar import LONGEST_SCHEMAS, call_grammar, narrowed, without
from engines.cpu.json_schema import finite
from engines.prompt import first_kept, opens, role_and_text, system_text
from engines.vllm.internals import Tokenizer
from engines.vllm.options import VllmOptions
from session_server.types.errors import one_line
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool

_PER_MESSAGE = 8
"""What a template puts around a message, at most."""

Turn = dict[str, str]


class ChatPrompt:
    """Renders jobs with one tokenizer (of the transformers kind)."""

    def __init__(self, tokenizer: Tokenizer, options: VllmOptions) -> None:
        self._tokenizer = tokenizer
        self._options = options
        names = sorted(_control_tokens(tokenizer), key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, names))) if names else None
        self._examples = [
            {"role": role, "content": self._clean(text)}
            for pair in options.examples
            for role, text in zip(("user", "assistant"), pair, strict=True)
        ]

    def render(self, job: ThinkJob) -> list[int]:
        """The job's prompt as tokens, up to where the answer begins, with room for an answer behind it. Raises ValueError when not even that fits."""
        room = self._options.context - self._options.longest_answer - 1
        head = self._head(job, room)
        turns = [self._turn(message) for message in job.messages]
        tokens = self._tokens(head + turns, not job.warm)
        return tokens if len(tokens) <= room else self._trimmed(job, head, turns, room)

    def _trimmed(self, job: ThinkJob, head: list[Turn], turns: list[Turn], room: int) -> list[int]:
        lengths = [len(self._encode(turn["content"])) + _PER_MESSAGE for turn in turns]
        left = max(1, room - len(self._tokens(head, not job.warm)))
        can_open = [opens(message) for message in job.messages]
        while True:
            first = first_kept(lengths, left, can_open)
            kept = turns[first:]
            if len(kept) == 1 and lengths[-1] > left:
                kept = [self._shortened(kept[0], left)]
            tokens = self._tokens(head + kept, not job.warm)
            if len(tokens) <= room:
                return tokens
            # the template takes more than was reckoned with
            left -= len(tokens) - room
            if left <= _PER_MESSAGE:
                raise ValueError("the instructions and tools leave no room for a conversation")

    def _head(self, job: ThinkJob, room: int) -> list[Turn]:
        system = self._clean(system_text(job.instructions, job.tools))
        most = room * 3 // 4
        if len(system.encode()) > most:  # a token is a byte at least
            system = str(self._tokenizer.decode(self._encode(system)[:most]))
        if not system:
            return list(self._examples)
        role = "system" if self._options.system_role else "user"
        return [{"role": role, "content": system}, *self._examples]

    def _turn(self, message: PromptMessage) -> Turn:
        role, text = role_and_text(message)
        return {"role": role, "content": self._clean(text)}

    def _shortened(self, turn: Turn, room: int) -> Turn:
        tokens = self._encode(turn["content"])[: max(1, room - _PER_MESSAGE)]
        return {**turn, "content": str(self._tokenizer.decode(tokens))}

    def _tokens(self, turns: Sequence[Turn], answer: bool) -> list[int]:
        if not turns:
            return []
        try:
            text = self._tokenizer.apply_chat_template(
                _alternating(turns),
                tokenize=False,
                add_generation_prompt=answer,
                **self._options.template_options,
            )
        except Exception as error:  # a template raises what it likes
            line = one_line(error, 160)
            raise ValueError(
                f"the model's chat template refuses the conversation: {line}"
            ) from error
        return self._encode(str(text))

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _clean(self, text: str) -> str:
        plain = text.encode("utf-8", "replace").decode("utf-8")
        if self._control is None:
            return plain
        return self._control.sub(lambda found: f"{found[0][0]} {found[0][1:]}", plain)


def _alternating(turns: Sequence[Turn]) -> list[Turn]:
    """The turns with neighbours of one role joined: many templates refuse them."""
    out: list[Turn] = []
    for turn in turns:
        if out and out[-1]["role"] == turn["role"]:
            out[-1] = {**turn, "content": f"{out[-1]['content']}\n{turn['content']}"}
        else:
            out.append(turn)
    return out


def _control_tokens(tokenizer: Tokenizer) -> set[str]:
    """Texts that this tokenizer reads as control tokens."""
    added = getattr(tokenizer, "added_tokens_decoder", {}) or {}
    names = {str(token) for token in added.values()} | set(tokenizer.all_special_tokens)
    return {name for name in names if len(name) > 1 and not name.isspace() and not name.isalnum()}


LONGEST_CALL = 400
"""Tokens; narrowed schemas end before it, but for odd ones."""
_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_HARD = frozenset({"not", "if", "then", "else", "patternProperties", "format", "pattern"})


def chosen_tools(job: ThinkJob) -> tuple[Tool, ...]:
    """What may be called. Raises ValueError when nothing can be."""
    tools = job.tools
    if job.tool_choice == "function":
        tools = tuple(tool for tool in tools if tool.name == job.tool_name)
        if not tools:
            raise ValueError(f"there is no tool named {job.tool_name!r}")
    if not tools:
        raise ValueError("a call was demanded, but there are no tools")
    return tools


def grammar_for(tools: Sequence[Tool]) -> str:
    """The Lark grammar of one call of one of `tools`. Raises ValueError for schemas that cannot be used."""
    if sum(len(tool.parameters) for tool in tools) > LONGEST_SCHEMAS:
        raise ValueError("the tools' parameters are too long to force a call")
    return call_grammar([tool.name for tool in tools], [_usable(tool) for tool in tools])


def _usable(tool: Tool) -> Mapping[str, object]:
    try:
        schema = json.loads(tool.parameters) if tool.parameters.strip() else {}
        simple = without(schema or {"type": "object", "properties": {}}, _HARD)
        return {**narrowed(finite(simple)), "x-guidance": _LAYOUT}
    except (ValueError, RecursionError):
        raise ValueError(f"the parameters of tool {tool.name} cannot be read") from None
