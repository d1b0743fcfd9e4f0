"""The grammar of a forced tool call, for vLLM's structured outputs (backend `guidance`, which reads Lark).

The same text as everywhere: `<tool_call>{"name": ..., "arguments": ...}</tool_call>`, the arguments valid for the tool's schema,
which is narrowed first (`engines.cpu.grammar`) so that a call comes to an end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from engines.base import FunctionSpec, ThinkJob
from engines.cpu.grammar import LONGEST_SCHEMAS, call_grammar, narrowed, without
from engines.cpu.grammar_refs import finite

LONGEST_CALL = 400
"""Tokens; narrowed schemas end before it, but for odd ones."""
_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_HARD = frozenset({"not", "if", "then", "else", "patternProperties", "format", "pattern"})


def chosen_tools(job: ThinkJob) -> tuple[FunctionSpec, ...]:
    """What may be called. Raises ValueError when nothing can be."""
    tools = job.tools
    if job.tool_choice == "function":
        tools = tuple(tool for tool in tools if tool.name == job.tool_name)
        if not tools:
            raise ValueError(f"there is no tool named {job.tool_name!r}")
    if not tools:
        raise ValueError("a call was demanded, but there are no tools")
    return tools


def grammar_for(tools: Sequence[FunctionSpec]) -> str:
    """The Lark grammar of one call of one of `tools`. Raises ValueError for schemas that cannot be used."""
    if sum(len(tool.parameters) for tool in tools) > LONGEST_SCHEMAS:
        raise ValueError("the tools' parameters are too long to force a call")
    return call_grammar([tool.name for tool in tools], [_usable(tool) for tool in tools])


def _usable(tool: FunctionSpec) -> Mapping[str, object]:
    try:
        schema = json.loads(tool.parameters) if tool.parameters.strip() else {}
        simple = without(schema or {"type": "object", "properties": {}}, _HARD)
        return {**narrowed(finite(simple)), "x-guidance": _LAYOUT}
    except (ValueError, RecursionError):
        raise ValueError(f"the parameters of tool {tool.name} cannot be read") from None
