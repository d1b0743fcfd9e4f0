"""Whatever the schema and whatever the model likes to say: a forced call ends, is JSON, and fits its schema."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from engines.cpu.decoding import MOST_CHOICES, CallAnswer, ClosingTokens
from engines.cpu.grammar import CallGrammars
from engines.cpu.smollm_prompt import END, SmolTokenizer
from session_server.types.tools import Tool
from tests.unit.engines.cpu.conftest import write_tokenizer

pytestmark = pytest.mark.property

BUDGET = 160

SCALARS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({"type": "string"}),
    st.just({"type": "boolean"}),
    st.just({"type": "integer"}),
    st.just({"type": "number"}),
    st.just({"type": "null"}),
    st.just({"enum": ["red", "green", 3, None]}),
    st.just({"const": {"a": [1]}}),
    st.builds(lambda a: {"type": "string", "minLength": a, "maxLength": a + 3}, st.integers(0, 80)),
    st.builds(lambda a: {"type": "integer", "minimum": a, "maximum": a + 5}, st.integers(-99, 99)),
    st.just({"type": "number", "exclusiveMinimum": 5_000_000}),
    st.just({"type": ["string", "null"]}),
    st.just({"type": "string", "pattern": "^[a-c]{2,5}$"}),
)


def _nested(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from(["city", "n", 'odd "name"', "\u00e9t\u00e9", "a b"])
    objects = st.dictionaries(names, inner, max_size=4).flatmap(
        lambda properties: st.lists(st.sampled_from(sorted(properties) or ["x"]), unique=True).map(
            lambda required: {
                "type": "object",
                "properties": properties,
                "required": [r for r in required if r in properties],
            }
        )
    )
    arrays = st.builds(
        lambda items, least: {"type": "array", "items": items, "minItems": least},
        inner,
        st.integers(0, 4),
    )
    return st.one_of(objects, arrays, st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner))


SCHEMAS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.recursive(SCALARS, _nested, max_leaves=6), max_size=3
).map(lambda p: {"type": "object", "properties": p, "required": sorted(p)[:2]})


@pytest.fixture(scope="module")
def kit(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[SmolTokenizer, CallGrammars, ClosingTokens]:
    path: Path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    write_tokenizer(path)
    tokenizer = SmolTokenizer(path)
    closing = ClosingTokens(tokenizer)
    return tokenizer, CallGrammars(tokenizer, END, closing), closing


def fits(value: object, schema: dict[str, Any]) -> bool:
    """A plain reading of the few keywords used here."""
    if "anyOf" in schema:
        return any(fits(value, inner) for inner in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    if "const" in schema:
        return value == schema["const"]
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return any(_fits_kind(value, kind, schema) for kind in kinds)


def _fits_kind(value: object, kind: str, schema: dict[str, Any]) -> bool:
    match kind, value:
        case "null", None:
            return True
        case "boolean", bool():
            return True
        case "string", str():
            return schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1000)
        case ("integer", int()) | ("number", int() | float()) if not isinstance(value, bool):
            return schema.get("minimum", value) <= value <= schema.get(
                "maximum", value
            ) and value >= schema.get("exclusiveMinimum", value)
        case "array", list():
            long_enough = len(value) >= schema.get("minItems", 0)
            return long_enough and all(fits(v, schema["items"]) for v in value)
        case "object", dict():
            known = schema.get("properties", {})
            required = set(schema.get("required", ()))
            return required <= value.keys() <= known.keys() and all(
                fits(v, known[k]) for k, v in value.items()
            )
    return False


def demand(schema: dict[str, Any]) -> int:
    """About how many choices a value takes at most."""
    parts = [demand(part) for part in schema.get("anyOf", ())]
    parts += [sum(map(demand, schema.get("properties", {}).values()))]
    if schema.get("type") == "array":
        parts.append(max(3, schema.get("minItems", 0)) * demand(schema["items"]))
    return 10 + schema.get("minLength", 0) + max(parts)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schema=SCHEMAS, seed=st.integers(0, 1000), budget=st.sampled_from([1, 40, BUDGET]))
def test_calls_end_and_fit(
    kit: tuple[SmolTokenizer, CallGrammars, ClosingTokens],
    schema: dict[str, Any],
    seed: int,
    budget: int,
) -> None:
    assume(demand(schema) <= MOST_CHOICES * 3 // 4)
    tokenizer, grammars, closing = kit
    tools = [Tool("f", "", json.dumps(schema)), Tool('g "x"', "", "{}")]
    answer = CallAnswer(tokenizer, grammars.matcher(tools[: 1 + seed % 2]), closing, budget)
    rng = np.random.default_rng(seed)
    piece = answer.begin()
    text = piece.text
    for _ in range(2 * BUDGET):
        if piece.reason is not None:
            break
        piece = answer.advance(rng.standard_normal(tokenizer.vocabulary).astype(np.float32))
        text += piece.text
    assert piece.reason == "stop"
    call = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert call["name"] in [tool.name for tool in tools]
    if call["name"] == "f":
        assert fits(call["arguments"], schema), text


@pytest.mark.parametrize(
    "parameters",
    [
        "", "null", "[]", "{broken", "true", '{"type": "nonsense"}', '{"type": "string"}',
        '{"type":"object","properties":{"p":{"type":"string","pattern":"("}},"required":["p"]}',
        '{"type":"object","properties":{"p":{"$ref":"#/nowhere"}}}',
        '{"type":"object","properties":{"p":{"not":{"type":"string"}}}}',
        '{"type":"object","properties":7,"required":3}',
        '{"type":"object","additionalProperties":{"type":"integer"}}',
        '{"type":"object","properties":{"t":{"$ref":"#/$defs/T"}},"required":["t"],"$defs":{"T":{"type":'
        '"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/T"}}},"required":["kids"]}}}',
    ],
)  # fmt: skip
def test_odd_schemas_still_give_an_object(
    kit: tuple[SmolTokenizer, CallGrammars, ClosingTokens], parameters: str
) -> None:
    tokenizer, grammars, closing = kit
    matcher = grammars.matcher([Tool("f", "", parameters)])
    answer = CallAnswer(tokenizer, matcher, closing, 20)
    piece = answer.begin()
    text = piece.text
    while piece.reason is None:
        piece = answer.advance(np.zeros(tokenizer.vocabulary, np.float32))
        text += piece.text
    call = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert call["name"] == "f"


def _object(n: object) -> dict[str, Any]:
    return {"type": "object", "properties": {"n": n}, "required": ["n"]}


ENDLESS: list[dict[str, Any]] = [
    _object({"$ref": "#"}),
    _object({"$ref": "#/properties/n"}),
    _object({"type": "array", "items": {"$ref": "#"}, "minItems": 1}),
    _object({"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1}),
    _object({"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
    {"$ref": "#"},
    {"type": "object", "properties": {"n": {"$ref": "#/properties/n"}}},
    {**_object({"$ref": "#/$defs/a"}), "$defs": {"a": _object({"$ref": "#/$defs/a"})}},
    {**_object({}), "required": [], "properties": {"n": _object({"$ref": "#/properties/n"})}},
]
UNREASONABLE: list[dict[str, Any]] = [
    {"type": "string", "minLength": 9999},
    {"type": "string", "minLength": 1e300},
    {"type": "string", "minLength": 5, "maxLength": 2},
    {"type": "string", "maxLength": float("inf")},
    {"type": "string", "minLength": "x"},
    {"type": "array", "items": {"type": "string"}, "minItems": 5000},
    {"type": "integer", "minimum": 5, "maximum": 1},
    {"type": "integer", "minimum": 0.2, "maximum": 0.8},
    {"type": "integer", "minimum": 10**40},
    {"type": "number", "exclusiveMinimum": 5, "maximum": 5},
    {"type": "integer", "multipleOf": 0},
    {"type": ["array", "string"], "minItems": 9999, "minLength": 9999},
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "schema",
    [*ENDLESS, *map(_object, UNREASONABLE), *({"properties": {"n": u}} for u in UNREASONABLE)],
    ids=lambda schema: json.dumps(schema)[:60],
)
def test_a_schema_that_no_short_value_fits_does_not_make_the_call_endless(
    kit: tuple[SmolTokenizer, CallGrammars, ClosingTokens], schema: dict[str, Any], seed: int
) -> None:
    tokenizer, grammars, closing = kit
    matcher = grammars.matcher([Tool("f", "", json.dumps(schema))])
    answer = CallAnswer(tokenizer, matcher, closing, BUDGET)
    rng = np.random.default_rng(seed)
    piece = answer.begin()
    text, tokens = piece.text, len(piece.tokens)
    while piece.reason is None:
        piece = answer.advance(rng.standard_normal(tokenizer.vocabulary).astype(np.float32))
        text += piece.text
        tokens += len(piece.tokens)
    assert tokens < 1000
    arguments = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert isinstance(arguments["arguments"], dict)
    assert set(arguments["arguments"]) >= set(schema.get("required", ()))


def test_a_list_that_may_end_keeps_its_shape(
    kit: tuple[SmolTokenizer, CallGrammars, ClosingTokens],
) -> None:
    """A reference to the whole that may be left out is no endless one."""
    tokenizer, grammars, _ = kit
    schema = {
        "type": "object",
        "properties": {"value": {"type": "integer"}, "next": {"$ref": "#"}},
        "required": ["value"],
    }
    matcher = grammars.matcher([Tool("f", "", json.dumps(schema))])
    call = '{"name": "f", "arguments": {"value": 1, "next": {"value": 2}}}'
    assert matcher.validate_tokens(tokenizer.encode("<tool_call>" + call)) == len(
        tokenizer.encode("<tool_call>" + call)
    )
    wrong = tokenizer.encode("<tool_call>" + call.replace('{"value": 2}', "7"))
    assert matcher.validate_tokens(wrong) < len(wrong)


def test_many_heavy_tools_do_not_hold_everybody_up(
    kit: tuple[SmolTokenizer, CallGrammars, ClosingTokens], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Choices made in rehearsals are the cost; they are counted, and bounded whatever the tools are."""
    tokenizer, grammars, closing = kit
    choices = 0
    choose = closing.choose

    def counted(allowed: Any) -> int:
        nonlocal choices
        choices += 1
        return choose(allowed)

    monkeypatch.setattr(closing, "choose", counted)
    tools = []
    for i in range(100):
        names = [f"p{i}_{j}" for j in range(40)]
        heavy = {"type": "string", "minLength": 190}
        schema = {"type": "object", "properties": dict.fromkeys(names, heavy), "required": names}
        tools.append(Tool(f"f{i}", "", json.dumps(schema)))
    matcher = grammars.matcher(tools)
    assert choices <= 1024
    answer = CallAnswer(tokenizer, matcher, closing, 20)
    text = answer.begin().text + answer.finish().text
    call = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert isinstance(call["arguments"], dict)
