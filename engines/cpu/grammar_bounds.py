"""Bounds of a JSON schema that can be kept: a small model's call has to come to an end.

A rule that asks for too much (a string of 9999 characters), that contradicts another one (minimum above maximum),
or that is no number is dropped: the arguments are then valid JSON, but need not be valid for that rule.
Lengths are in characters and items.
"""

from __future__ import annotations

import math
from typing import Any, TypeGuard

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
