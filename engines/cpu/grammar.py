"""Grammars under which a forced function call is decoded.

A call is `<tool_call>{"name": "...", "arguments": {...}}</tool_call>` with arguments that are valid for the tool's
JSON schema. Schemas are narrowed first, so that a small model cannot write for ever: strings, arrays, numbers
and open-ended objects get bounds where the schema has none. What asks for endless or unreasonably long values is dropped
(`grammar_refs`, `grammar_bounds`), and what the grammar compiler does not know is left out step by step. Every schema is
rehearsed before use: one call is made without the model, and has to end. A broken schema gives any flat object.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from engines.cpu.decoding import MOST_CHOICES, CallAnswer, ClosingTokens
from engines.cpu.json_schema import drop_unreasonable, finite
from engines.cpu.smollm_prompt import SmolTokenizer
from engines.prompt import CALL_CLOSE, CALL_OPEN
from session_server.types.tools import Tool

Schema = Mapping[str, Any]

LONGEST_STRING = 60
MOST_ITEMS = 3
LARGEST_NUMBER = 1_000_000
_DEEPEST = 8
LONGEST_SCHEMAS = 16_384
"""All tools' schemas together, in characters. What is beyond does not fit the prompt either: any flat object will do.
Compiling is for the engine's thread: everybody waits meanwhile."""
_MOST_KEPT = 256
_REHEARSALS = 1024
"""Choices that all rehearsals of a call's tools may take together."""

_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_SCALAR: Schema = {
    "type": ["string", "integer", "boolean", "null"],
    "maxLength": LONGEST_STRING,
    "minimum": -LARGEST_NUMBER,
    "maximum": LARGEST_NUMBER,
}
_FLAT: Schema = {"type": "object", "additionalProperties": _SCALAR, "maxProperties": MOST_ITEMS}
_ANYTHING: Schema = {**_FLAT, "x-guidance": _LAYOUT}
_NESTED = ("properties", "$defs", "definitions", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
# what the compiler does not know, or knows only in part; tried without before a schema is given up
_DOUBTFUL = frozenset(
    {"not", "if", "then", "else", "uniqueItems", "contains", "dependentRequired", "dependentSchemas",
     "propertyNames", "unevaluatedProperties", "unevaluatedItems", "format", "pattern", "minProperties",
     "patternProperties"}
)  # fmt: skip
_DEMANDS = _DOUBTFUL | {"$ref", "minLength", "minItems", "multipleOf", "prefixItems"}
"""What makes values long, as well."""


def narrowed(schema: object, depth: int = 0) -> dict[str, Any]:
    """The schema with bounds added; every value valid for the result is valid for `schema`, but for dropped bounds."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return dict(_SCALAR)
    out = {key: value for key, value in schema.items() if key not in ("description", "title")}
    for key in _NESTED:
        if isinstance(out.get(key), Mapping):
            out[key] = {name: narrowed(inner, depth + 1) for name, inner in out[key].items()}
    for key in _LISTS:
        if isinstance(out.get(key), list):
            out[key] = [narrowed(inner, depth + 1) for inner in out[key]]
    if not any(key in out for key in ("$ref", "enum", "const", *_LISTS)):
        _bound(out, depth)
    return out


def _bound(out: dict[str, Any], depth: int) -> None:
    """Add bounds for each type that a value of `out` may have."""
    drop_unreasonable(out)
    kinds = _kinds(out)
    if not kinds:
        out.update(_SCALAR)
        return
    if "object" in kinds:
        _bound_object(out, depth)
    if "array" in kinds:
        least = _count(out.get("minItems"), 0)
        out["items"] = narrowed(out.get("items", True), depth + 1)
        most = max(MOST_ITEMS, least)
        out["maxItems"] = min(_count(out.get("maxItems"), most), most)
    if "string" in kinds:
        least = _count(out.get("minLength"), 0)
        longest = max(LONGEST_STRING, least)
        out["maxLength"] = min(_count(out.get("maxLength"), longest), longest)
    if "integer" in kinds or "number" in kinds:
        if not {"minimum", "exclusiveMinimum"} & out.keys():
            out["minimum"] = min(0, _ceiling(out)) - LARGEST_NUMBER
        if not {"maximum", "exclusiveMaximum"} & out.keys():
            out["maximum"] = max(0, _floor(out)) + LARGEST_NUMBER


def _bound_object(out: dict[str, Any], depth: int) -> None:
    known, required = out.get("properties"), out.get("required")
    properties = dict(known) if isinstance(known, Mapping) else {}
    names = [n for n in required if isinstance(n, str)] if isinstance(required, list) else []
    for name in names:
        properties.setdefault(name, dict(_SCALAR))
    out["properties"], out["required"] = properties, names
    more = out.get("additionalProperties")
    if isinstance(more, Mapping) and not properties:
        out["additionalProperties"] = narrowed(more, depth + 1)
        out["maxProperties"] = min(_count(out.get("maxProperties"), MOST_ITEMS), MOST_ITEMS)
    else:
        out["additionalProperties"] = False


def _kinds(schema: Schema) -> set[str]:
    """The types a value may have; guessed from other keywords when there is no `type`."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return {str(k) for k in kind}
    if "properties" in schema or "additionalProperties" in schema or "required" in schema:
        return {"object"}
    if "items" in schema:
        return {"array"}
    if "pattern" in schema or "format" in schema or "maxLength" in schema:
        return {"string"}
    return {"number"} if "minimum" in schema or "maximum" in schema else set()


def _count(value: object, default: int) -> int:
    return int(value) if isinstance(value, (int, float)) and value >= 0 else default


def _floor(schema: Schema) -> int:
    value = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    return int(value) if isinstance(value, (int, float)) else 0


def _ceiling(schema: Schema) -> int:
    value = schema.get("maximum", schema.get("exclusiveMaximum", 0))
    return int(value) if isinstance(value, (int, float)) else 0


def without(schema: object, keys: frozenset[str]) -> object:
    """A copy without the keywords `keys`, at any depth (names of properties are kept)."""
    if isinstance(schema, Mapping):
        return {
            key: {name: without(inner, keys) for name, inner in value.items()}
            if key in _NESTED and isinstance(value, Mapping)
            else without(value, keys)
            for key, value in schema.items()
            if key not in keys
        }
    if isinstance(schema, list):
        return [without(item, keys) for item in schema]
    return schema


class CallGrammars:
    """Compiles grammars for one tokenizer."""

    def __init__(self, tokenizer: SmolTokenizer, end: int, closing: ClosingTokens) -> None:
        self._characters = tokenizer
        self._closing = closing
        self._tokenizer = LLTokenizer(
            str(tokenizer.path), n_vocab=tokenizer.vocabulary, eos_token=end
        )
        self._kept: dict[str, Schema] = {}
        self._choices_left = _REHEARSALS

    def matcher(self, tools: Sequence[Tool]) -> LLMatcher:
        """A matcher at the start of a call of one of `tools`. Raises ValueError when there are none."""
        if not tools:
            raise ValueError("a call was demanded, but there are no tools")
        names = [tool.name for tool in tools]
        matcher = self._match(names, self._schemas(tools))
        if matcher.is_error():  # too much in all
            matcher = self._match(names, [_ANYTHING] * len(tools))
        if matcher.is_error():
            raise ValueError("the tools cannot be used to force a call")
        return matcher

    def _schemas(self, tools: Sequence[Tool]) -> list[Schema]:
        """Per tool the narrowed schema, or the nearest one under which a call can be made."""
        schemas, room = [], LONGEST_SCHEMAS
        self._choices_left = _REHEARSALS
        for tool in tools:
            room -= len(tool.parameters)
            schemas.append(_ANYTHING if room < 0 else self._usable(tool.parameters))
        return schemas

    def _usable(self, parameters: str) -> Schema:
        usable = self._kept.get(parameters)
        if usable is None:
            usable = self._nearest(parameters)
            if self._choices_left > 0:  # else it might have done better by itself
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                self._kept[parameters] = usable
        return usable

    def _nearest(self, parameters: str) -> Schema:
        try:
            schema = json.loads(parameters) if parameters.strip() else {}
        except (ValueError, RecursionError):
            schema = {}
        if not schema:
            schema = {"type": "object", "properties": {}}
        for simplify in _TRIES:
            try:
                usable = narrowed(simplify(schema)) | {"x-guidance": _LAYOUT}
                if self._works(usable):
                    return usable
            except Exception:  # whatever a client's schema provokes, a simpler one may do
                continue
        return _ANYTHING

    def _works(self, schema: Schema) -> bool:
        """Whether a call can be made under the schema: one is, without the model."""
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema))
        if LLMatcher.validate_grammar(grammar, self._tokenizer):
            return False
        most = min(MOST_CHOICES, self._choices_left)
        matcher = self._match(["f"], [schema])
        answer = CallAnswer(self._characters, matcher, self._closing, 1, most)
        try:
            piece = answer.begin()
            text = piece.text if piece.reason is not None else piece.text + answer.finish().text
        finally:
            self._choices_left -= most - answer.choices_left
        call = json.loads(text.removeprefix(CALL_OPEN).removesuffix(CALL_CLOSE))
        return isinstance(call["arguments"], dict)

    def _match(self, names: Sequence[str], schemas: Sequence[Schema]) -> LLMatcher:
        return LLMatcher(self._tokenizer, _compiled(names, schemas), log_level=0)


def _names_only(schema: object) -> Schema:
    """Only the top-level property names of a schema that could not be used."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    required = schema.get("required") if isinstance(schema, Mapping) else None
    names = list(properties) if isinstance(properties, Mapping) else []
    keep = [n for n in required if n in names] if isinstance(required, list) else []
    return {"type": "object", "properties": dict.fromkeys(names, True), "required": keep}


_TRIES: tuple[Callable[[object], object], ...] = (
    finite,
    lambda schema: finite(without(schema, _DOUBTFUL)),
    lambda schema: without(schema, _DEMANDS),
    _names_only,
)


def call_grammar(names: Sequence[str], schemas: Sequence[Schema]) -> str:
    """The Lark grammar of one call of one of the tools."""
    calls = range(len(names))
    lines = [
        f"start: {json.dumps(CALL_OPEN)} ({' | '.join(f'call_{i}' for i in calls)}) {json.dumps(CALL_CLOSE)}"
    ]
    for i, (name, schema) in enumerate(zip(names, schemas, strict=True)):
        head = json.dumps(f'{{"name": {json.dumps(name)}, "arguments": ')
        lines.append(f'call_{i}: {head} arguments_{i} "}}"')
        lines.append(f"arguments_{i}: %json {json.dumps(schema)}")
    return "\n".join(lines)


def _compiled(names: Sequence[str], schemas: Sequence[Schema]) -> str:
    return LLMatcher.grammar_from_lark(call_grammar(names, schemas))
