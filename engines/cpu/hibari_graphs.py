"""Builds the three graphs of the speech stages from hibari's single one, once, at fetch time.

hibari_talker.onnx       ids [1, L], speed [1] -> FEATURES [1, 130, F], f0 [1, F], DURATIONS [L]
hibari_codec.onnx        FEATURES -> five spectra [1, 601, F], 8-bit products
hibari_codec_float.onnx  the same with float products: decoding in chunks then equals decoding whole

F counts frames of 12.5 ms. Only this module knows the names inside hibari's graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.utils import extract_model

from engines.model_store.recipes import HIBARI_CODEC, HIBARI_CODEC_FLOAT, HIBARI_TALKER
from session_server.types.errors import EngineFault

FEATURES = "/Concat_43_output_0"
"""Acoustic frames [1, 130, F]: 128 phoneme channels, log F0, energy."""
F0 = "f0"
DURATIONS = "/Cast_32_output_0"
"""How long each phoneme id lasts: integers, in units of FRAMES_PER_DURATION frames, that sum to F."""
FRAMES_PER_DURATION = 2
SPECTRA = ("lh", "theta", "ln", "lr", "phi")


def build(source: Path, out_dir: Path) -> None:
    """Cut `source` (hibari.onnx) into the three graphs, in `out_dir`."""
    out_dir.mkdir(parents=True, exist_ok=True)
    _extract(source, out_dir / HIBARI_TALKER, ["ids", "speed"], [FEATURES, F0, DURATIONS])
    _extract(source, out_dir / HIBARI_CODEC, [FEATURES], list(SPECTRA))
    model = onnx.load(str(out_dir / HIBARI_CODEC))
    dequantise(model)
    _write(model, out_dir / HIBARI_CODEC_FLOAT)


def _extract(source: Path, target: Path, inputs: list[str], outputs: list[str]) -> None:
    partial = target.with_suffix(".partial.onnx")
    extract_model(str(source), str(partial), inputs, outputs, check_model=False)
    partial.replace(target)


def _write(model: onnx.ModelProto, target: Path) -> None:
    partial = target.with_suffix(".partial.onnx")
    onnx.save(model, str(partial))
    partial.replace(target)


def dequantise(model: onnx.ModelProto) -> int:
    """Make every 8-bit product of `model` a float one, in place; how many there were.

    DynamicQuantizeLinear takes its scale from the whole tensor of a call, so 8-bit results depend on the
    chunk. Each group DynamicQuantizeLinear -> MatMulInteger -> Cast -> Mul becomes one MatMul.
    """
    graph = model.graph
    known = _constants(graph)
    producer = {name: node for node in graph.node for name in node.output}
    consumer = {name: node for node in graph.node for name in node.input}
    replaced: dict[int, Any] = {}
    dropped: set[int] = set()
    weights = []
    for node in graph.node:
        if node.op_type != "MatMulInteger":
            continue
        quantise = producer[node.input[0]]
        cast = consumer[node.output[0]]
        scale = consumer[cast.output[0]]
        scales = producer[next(name for name in scale.input if name != cast.output[0])]
        weight_scale = next(name for name in scales.input if name != quantise.output[1])
        zero = known[node.input[3]].astype(np.int32)
        weight = (known[node.input[1]].astype(np.int32) - zero) * known[weight_scale]
        name = f"{node.name}_float"
        weights.append(numpy_helper.from_array(weight.astype(np.float32), name))
        replaced[id(node)] = helper.make_node(
            "MatMul", [quantise.input[0], name], [scale.output[0]], name=name
        )
        dropped |= {id(n) for n in (node, cast, scale, scales, quantise)}
    nodes = [
        replaced.get(id(n), n) for n in graph.node if id(n) in replaced or id(n) not in dropped
    ]
    _replace(graph, nodes, [*graph.initializer, *weights])
    return len(replaced)


def _replace(graph: onnx.GraphProto, nodes: list[Any], initializers: list[Any]) -> None:
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in initializers if tensor.name in used]
    known = {value.name for value in graph.input} | {tensor.name for tensor in kept} | {""}
    ordered = _in_order(nodes, known)
    for field, values in (("node", ordered), ("initializer", kept), ("value_info", [])):
        del getattr(graph, field)[:]
        getattr(graph, field).extend(values)


def _constants(graph: onnx.GraphProto) -> dict[str, np.ndarray[Any, Any]]:
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    found[node.output[0]] = numpy_helper.to_array(attribute.t)
    return found


def _in_order(nodes: Iterable[Any], known: set[str]) -> list[Any]:
    """Topological order."""
    ordered: list[Any] = []
    waiting = list(nodes)
    while waiting:
        later = []
        for node in waiting:
            if known.issuperset(node.input):
                ordered.append(node)
                known |= set(node.output)
            else:
                later.append(node)
        if len(later) == len(waiting):
            raise EngineFault("hibari's graph has a cycle or a missing input: wrong version?")
        waiting = later
    return ordered
