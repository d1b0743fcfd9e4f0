"""Grammars under which a forced function call is decoded.

A call is `<tool_call>{"name": "...", "arguments": {...}}</tool_call>` with arguments that are valid for the tool's
JSON schema. Schemas are narrowed first, so that a small model cannot write for ever: strings, arrays, numbers
and open-ended objects get bounds where the schema has none. What the grammar compiler does not know is left
out step by step; a broken schema gives any flat object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from engines.base import FunctionSpec
from engines.cpu.chat_template import CALL_CLOSE, CALL_OPEN

Schema = Mapping[str, Any]

LONGEST_STRING = 60
MOST_ITEMS = 3
LARGEST_NUMBER = 1_000_000
_DEEPEST = 8

_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_SCALAR: Schema = {
    "type": ["string", "integer", "boolean", "null"],
    "maxLength": LONGEST_STRING,
    "minimum": -LARGEST_NUMBER,
    "maximum": LARGEST_NUMBER,
}
_FLAT: Schema = {"type": "object", "additionalProperties": _SCALAR, "maxProperties": MOST_ITEMS}
_NESTED = ("properties", "$defs", "definitions", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
# what the compiler does not know, or knows only in part; tried without before a schema is given up
_DOUBTFUL = frozenset(
    {"not", "if", "then", "else", "uniqueItems", "contains", "dependentRequired", "dependentSchemas",
     "propertyNames", "unevaluatedProperties", "unevaluatedItems", "format", "pattern", "minProperties",
     "patternProperties"}
)  # fmt: skip


def narrowed(schema: object, depth: int = 0) -> dict[str, Any]:
    """The schema with bounds added; every value valid for the result is valid for `schema`."""
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

    def __init__(self, tokenizer_json: str, vocabulary: int, end: int) -> None:
        self._tokenizer = LLTokenizer(tokenizer_json, n_vocab=vocabulary, eos_token=end)

    def matcher(self, tools: Sequence[FunctionSpec]) -> LLMatcher:
        """A matcher at the start of a call of one of `tools`. Raises ValueError when there are none."""
        if not tools:
            raise ValueError("a call was demanded, but there are no tools")
        schemas = [self._usable(tool.parameters) for tool in tools]
        matcher = LLMatcher(self._tokenizer, _grammar([tool.name for tool in tools], schemas))
        if matcher.is_error():
            raise ValueError(f"the tools give no grammar: {matcher.get_error()}"[:200])
        return matcher

    def _usable(self, parameters: str) -> Schema:
        """The narrowed schema, or the nearest one that the compiler takes."""
        try:
            schema = json.loads(parameters) if parameters.strip() else {}
        except ValueError:
            schema = {}
        if not schema:
            schema = {"type": "object", "properties": {}}
        tries = (schema, without(schema, _DOUBTFUL), _names_only(schema))
        for candidate in tries:
            usable = narrowed(candidate) | {"x-guidance": _LAYOUT}
            if self._compiles(usable):
                return usable
        return {**_FLAT, "x-guidance": _LAYOUT}

    def _compiles(self, schema: Schema) -> bool:
        try:
            grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema))
        except (ValueError, TypeError):
            return False
        return not LLMatcher.validate_grammar(grammar, self._tokenizer)


def _names_only(schema: object) -> Schema:
    """Only the top-level property names of a schema that could not be used."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    required = schema.get("required") if isinstance(schema, Mapping) else None
    names = list(properties) if isinstance(properties, Mapping) else []
    keep = [n for n in required if n in names] if isinstance(required, list) else []
    return {"type": "object", "properties": dict.fromkeys(names, True), "required": keep}


def _grammar(names: Sequence[str], schemas: Sequence[Schema]) -> str:
    calls = range(len(names))
    lines = [
        f"start: {json.dumps(CALL_OPEN)} ({' | '.join(f'call_{i}' for i in calls)}) {json.dumps(CALL_CLOSE)}"
    ]
    for i, (name, schema) in enumerate(zip(names, schemas, strict=True)):
        head = json.dumps(f'{{"name": {json.dumps(name)}, "arguments": ')
        lines.append(f'call_{i}: {head} arguments_{i} "}}"')
        lines.append(f"arguments_{i}: %json {json.dumps(schema)}")
    return LLMatcher.grammar_from_lark("\n".join(lines))
