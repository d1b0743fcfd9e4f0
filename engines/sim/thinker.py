"""The smallest value that a JSON schema allows: what a forced call of the simulated thinker says.

Covers what tools use: const, enum, types, required, items, minimum, minLength, minItems, anyOf, oneOf, allOf and
local $ref. `pattern` and `format` are not looked at.

A simulated thinker: answers are made from the prompt by fixed rules, a word at a time.

A token is a word with the space before it. The prompt is read in steps of at most `max_units` tokens, then each
step gives one token. Rules: after a tool's result the answer quotes it; a tool is called when forced, or
when the user's last words name it; else the answer quotes those words and goes on for `words` words
(`long_words` when the user asks for something long).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias, cast

from engines.base import Capabilities, JobKey, Stage, StepResult, ThinkJob, TokenOutput
from engines.model_store.store import ModelStore
from engines.options import Count, Within, by_type
from engines.sim.job_engine import JobEngine, SimOptions
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Schema = Mapping[str, Json]

_MAX_DEPTH = 16


def minimal_json(schema_text: str) -> str:
    """A minimal value for the schema in `schema_text`, as JSON. `{}` for a schema that is no object."""
    root = json.loads(schema_text) if schema_text.strip() else {}
    return json.dumps(_value(root, root, 0) if isinstance(root, dict) and root else {})


def _value(schema: Json, root: Schema, depth: int) -> Json:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return None
    if isinstance(reference := schema.get("$ref"), str):
        return _value(_resolve(reference, root), root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if isinstance(choices := schema.get("enum"), list) and choices:
        return choices[0]
    for keyword in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(keyword), list) and options:
            return _value(options[0], root, depth + 1)
    parts = schema.get("allOf")
    return _typed(_merged(schema, parts) if isinstance(parts, list) else schema, root, depth)


def _typed(schema: Schema, root: Schema, depth: int) -> Json:
    kind = schema.get("type", "object" if "properties" in schema else "null")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "object":
            return _object(schema, root, depth)
        case "array":
            count = _number(schema.get("minItems"), 0)
            return [_value(schema.get("items"), root, depth + 1) for _ in range(int(count))]
        case "string":
            return "x" * int(_number(schema.get("minLength"), 0))
        case "integer":
            return math.ceil(_lowest(schema, 1.0))
        case "number":
            return _lowest(schema, 1e-6)
        case "boolean":
            return False
        case _:
            return None


def _object(schema: Schema, root: Schema, depth: int) -> Json:
    properties = schema.get("properties")
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    known = properties if isinstance(properties, dict) else {}
    return {str(name): _value(known.get(str(name)), root, depth + 1) for name in names}


def _lowest(schema: Schema, step: float) -> float:
    low = _number(schema.get("minimum"), -math.inf)
    low = max(low, _number(schema.get("exclusiveMinimum"), -math.inf) + step)
    high = _number(schema.get("maximum"), math.inf)
    high = min(high, _number(schema.get("exclusiveMaximum"), math.inf) - step)
    return min(max(0.0, low), high)


def _number(value: Json, default: float) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default


def _merged(schema: Schema, parts: list[Json]) -> Schema:
    merged: dict[str, Json] = {k: v for k, v in schema.items() if k != "allOf"}
    for part in parts:
        if isinstance(part, dict):
            for key, value in part.items():
                old = merged.get(key)
                if isinstance(old, dict) and isinstance(value, dict):
                    merged[key] = {**old, **value}
                elif isinstance(old, list) and isinstance(value, list):
                    merged[key] = [*old, *value]
                else:
                    merged[key] = value
    return merged


def _resolve(reference: str, root: Schema) -> Json:
    """A local reference such as `#/$defs/Place`; None when it leads nowhere."""
    value: Json = cast("Json", dict(root))
    for name in filter(None, reference.removeprefix("#").split("/")):
        value = value.get(name) if isinstance(value, dict) else None
    return value


_TOKEN = re.compile(r"\s*\S+|\s+$")
Words: TypeAlias = Annotated[int, Within(0, 100_000)]
_NUMBERS = "one two three four five six seven eight nine ten".split()  # noqa: SIM905 - readable


@dataclass(frozen=True, slots=True)
class ThinkerOptions(SimOptions):
    base_s: float = 0.0094
    per_item_s: float = 0.001
    per_unit_s: float = 0.002
    slots: Count | None = 8
    context_tokens: Count = 2048
    words: Words = 12
    long_words: Words = 200
    max_tokens: Count = 400


@dataclass(slots=True)
class _Job:
    prompt_tokens: int
    unread: int
    tokens: list[str]
    limit: int
    given: int = 0


def create(options: Mapping[str, object], store: ModelStore) -> SimThinker:
    return SimThinker(by_type(options, ThinkerOptions()))


class SimThinker(JobEngine[ThinkerOptions, _Job]):
    """A `SteppedEngine` for Stage.THINKER."""

    stage = Stage.THINKER

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, context_tokens=self._options.context_tokens)

    def start(self, key: JobKey, job: object) -> None:
        thought = self._accept(key, job, ThinkJob)
        limit = self._options.max_tokens if thought.max_tokens is None else thought.max_tokens
        size = prompt_size(thought, self._options.context_tokens - limit)
        answer = "" if thought.warm else self._answer(thought)
        self._jobs[key] = _Job(size, size, tokens_of(answer), limit)

    def _advance(self, key: JobKey, job: _Job, max_units: int) -> StepResult:
        if job.unread:
            units = min(max(1, max_units), job.unread)
            job.unread -= units
            return StepResult(key, TokenOutput(None), units)
        if job.given >= min(job.limit, len(job.tokens)):
            return StepResult(key, self._last(job, ""), 0, finished=True)
        text = job.tokens[job.given]
        job.given += 1
        if job.given == min(job.limit, len(job.tokens)):
            return StepResult(key, self._last(job, text), 1, finished=True)
        return StepResult(key, TokenOutput(text), 1)

    def _last(self, job: _Job, text: str) -> TokenOutput:
        reason = "stop" if job.given == len(job.tokens) else "max_output_tokens"
        return TokenOutput(text, reason, job.prompt_tokens, 0, job.given)

    def _answer(self, job: ThinkJob) -> str:
        return scripted_answer(job, self._options.words, self._options.long_words)


def tokens_of(answer: str) -> list[str]:
    return _TOKEN.findall(answer)


def scripted_answer(job: ThinkJob, words: int, long_words: int) -> str:
    """What is said to that prompt, by the rules above."""
    said = next((m.content for m in reversed(job.messages) if _is_user(m)), "")
    last = job.messages[-1] if job.messages else None
    if last is not None and last.kind == "result":
        return f"The tool {last.name} says {last.content}."
    if tool := _chosen_tool(job, said):
        arguments = json.loads(minimal_json(tool.parameters))
        call = json.dumps({"name": tool.name, "arguments": arguments})
        return f"<tool_call>{call}</tool_call>"
    words = long_words if "long" in said.lower() else words
    start = f"You said: {said.rstrip('.!? ')}." if said.strip() else "You said nothing."
    return " ".join([start, *_sentences(words - len(start.split()))])


def prompt_size(job: ThinkJob, room: int) -> int:
    """Tokens of the prompt; the oldest messages are left out while it does not fit into `room`."""
    fixed = len(job.instructions.split()) + 1
    size = fixed
    for i, message in enumerate(reversed(job.messages)):
        tokens = len(message.content.split()) + 1
        if i and size + tokens > room:
            break
        size += tokens
    return max(1, size)


def _is_user(message: PromptMessage) -> bool:
    return message.role == "user" and message.kind == "message"


def _chosen_tool(job: ThinkJob, said: str) -> Tool | None:
    if job.tool_choice == "none" or not job.tools:
        return None
    named = job.tool_name if job.tool_choice == "function" else None
    for tool in job.tools:
        mentioned = tool.name.replace("_", " ").lower() in said.replace("_", " ").lower()
        if tool.name == named or (named is None and mentioned):
            return tool
    return job.tools[0] if job.tool_choice == "required" else None


def _sentences(words: int) -> Iterator[str]:
    """Sentences of six words until there are enough."""
    for i in range(max(0, -(-words // 6))):
        yield f"This is sentence number {_NUMBERS[i % 10]} indeed."
