"""The smallest value that a JSON schema allows: what a forced call of the simulated thinker says.

Covers what tools use: const, enum, types, required, items, minimum, minLength, minItems, anyOf, oneOf, allOf and
local $ref. `pattern` and `format` are not looked at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import cast

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
