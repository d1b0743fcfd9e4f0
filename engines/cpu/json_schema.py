"""Reduces a JSON schema to what a grammar can keep, so that a tool call comes to an end.

`finite` replaces references that no finite value can fulfil by "anything".
`{"properties": {"n": {"$ref": "#"}}, "required": ["n"]}` asks for an object in an object in an
object, and a grammar made from it never ends. A reference that may be left out, or that an empty
list fulfils, stays.

`drop_unreasonable` drops a rule that asks for too much (a string of 9999 characters), that
contradicts another one (minimum above maximum), or that is no number: the arguments are then valid
JSON, but need not be valid for that rule.

Units: lengths are in characters and items.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

_MOST_REFERENCES = 32
"""With more different ones, all count as endless: looking for those that end takes their number squared."""
_DATA = frozenset({"enum", "const", "default", "examples"})


def finite(schema: object) -> object:
    """A copy in which every endless reference is `true`, which allows anything."""
    references = set(_references(schema))
    if not references:
        return schema
    return _replaced(schema, references - _ending(schema, references))


def _ending(root: object, references: set[str]) -> set[str]:
    """Those of `references` that some finite value fulfils."""
    if len(references) > _MOST_REFERENCES:
        return set()
    targets = {reference: _resolve(reference, root) for reference in references}
    ending: set[str] = set()
    while fresh := {r for r in references - ending if _ends(targets[r], ending)}:
        ending |= fresh
    return ending


def _ends(schema: object, ending: set[str]) -> bool:
    """Whether a finite value fulfils `schema` when only the references `ending` can be fulfilled."""
    if not isinstance(schema, Mapping):
        return True
    if "$ref" in schema:
        return schema["$ref"] in ending
    for key in ("anyOf", "oneOf"):
        choices = schema.get(key)
        if isinstance(choices, list) and not any(_ends(choice, ending) for choice in choices):
            return False
    parts = schema.get("allOf")
    if isinstance(parts, list) and not all(_ends(part, ending) for part in parts):
        return False
    return all(_ends(part, ending) for part in _needed(schema))


def _needed(schema: Mapping[str, Any]) -> Iterator[object]:
    """The parts of an object or array that every value has to have."""
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, Mapping) and isinstance(required, list):
        yield from (properties[n] for n in required if isinstance(n, str) and n in properties)
    if schema.get("minItems"):
        yield schema.get("items")
        first = schema.get("prefixItems")
        yield from first if isinstance(first, list) else ()


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for key, value in schema.items():
            if key not in _DATA:
                yield from _references(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from _references(item)


def _replaced(schema: object, endless: set[str]) -> object:
    if isinstance(schema, Mapping):
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference in endless:
            return True
        return {k: v if k in _DATA else _replaced(v, endless) for k, v in schema.items()}
    if isinstance(schema, list):
        return [_replaced(item, endless) for item in schema]
    return schema


def _resolve(reference: str, root: object) -> object:
    """A local reference such as `#/$defs/Place`; None when it leads nowhere."""
    value = root
    for name in filter(None, reference.removeprefix("#").split("/")):
        name = name.replace("~1", "/").replace("~0", "~")
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


LONGEST_DEMANDED = 200
MOST_DEMANDED = 16
_LARGEST = 2**53
"""Beyond it JSON numbers are not exact."""
_COUNTS = {"minLength": LONGEST_DEMANDED, "minItems": MOST_DEMANDED, "minProperties": MOST_DEMANDED}
_PAIRS = (("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"))
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def drop_unreasonable(schema: dict[str, Any]) -> None:
    """Remove from `schema` itself (not from its parts) every bound that cannot be kept."""
    for least, most in _PAIRS:
        for key in (least, most):
            value = schema.get(key)
            if key in schema and not (_is_number(value) and value >= 0):
                del schema[key]
        demanded = schema.get(least, 0)
        if demanded > min(_COUNTS[least], schema.get(most, math.inf)):
            del schema[least]
    for key in _LIMITS:
        if key in schema and not (_is_number(schema[key]) and abs(schema[key]) <= _LARGEST):
            del schema[key]
    if "multipleOf" in schema and not (
        _is_number(schema["multipleOf"]) and schema["multipleOf"] > 0
    ):
        del schema["multipleOf"]
    if _is_empty(schema):
        for key in _LIMITS:
            schema.pop(key, None)


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_empty(schema: dict[str, Any]) -> bool:
    """Whether no number fulfils the limits. For whole numbers none may be between them either."""
    low: float = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
    high: float = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
    if low > high:
        return True
    if math.isinf(low) or math.isinf(high):
        return False
    open_low = schema.get("exclusiveMinimum") == low
    open_high = schema.get("exclusiveMaximum") == high
    if schema.get("type") == "integer":
        first = math.floor(low) + 1 if open_low else math.ceil(low)
        last = math.ceil(high) - 1 if open_high else math.floor(high)
        return first > last
    return low == high and (open_low or open_high)
