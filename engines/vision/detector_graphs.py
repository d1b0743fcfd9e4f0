"""TensorFlow.js graph models as ONNX graphs, without TensorFlow: the operators that the two detectors use.

A model is a JSON file (`modelTopology`: TensorFlow nodes; `weightsManifest`: names, shapes and types of the weights) and binary
files of weights. TensorFlow keeps channels last, ONNX's convolutions want them first: each is wrapped in two transpositions, which
ONNX Runtime takes out again when it optimises. Weights kept as float16 are widened.
Sources: TensorFlow's GraphDef and the weights manifest of tfjs; ONNX operator set 17.

Builds the detectors' ONNX graphs from their TensorFlow.js files (`models fetch --vision`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
Node = dict[str, Any]

_OPSET = 17
_UNARY = {"Relu", "Sigmoid"}
_BINARY = {"Mul": "Mul", "Add": "Add", "AddV2": "Add", "Sub": "Sub"}
_CONVOLUTIONS = {"Conv2D", "_FusedConv2D", "DepthwiseConv2dNative", "FusedDepthwiseConv2dNative"}


class UnknownOperator(ValueError):
    """The model uses an operator that this module does not know."""


def convert(model: Path, outputs: Sequence[str], target: Path) -> None:
    """Write the nodes that `outputs` (TensorFlow names) need as an ONNX file; its outputs are named `out0`, `out1`, ...
    Raises UnknownOperator, or ValueError for weights that do not fit their manifest."""
    topology = json.loads(model.read_text())
    graph = _Graph(topology["modelTopology"]["node"], _weights(topology, model.parent))
    onnx.save(graph.model(outputs), str(target))


def _weights(model: dict[str, Any], folder: Path) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for group in model["weightsManifest"]:
        data = b"".join((folder / path).read_bytes() for path in group["paths"])
        offset = 0
        for weight in group["weights"]:
            stored = weight.get("quantization", weight)["dtype"]
            if stored not in ("float16", "float32", "int32"):
                raise ValueError(f"weight {weight['name']} is kept as {stored}")
            kind = np.dtype(stored)
            count = int(np.prod(weight["shape"]))
            array = np.frombuffer(data, kind, count, offset).reshape(weight["shape"])
            offset += count * kind.itemsize
            found[weight["name"]] = array.astype(weight["dtype"])
        if offset != len(data):
            raise ValueError(f"{len(data) - offset} bytes of weights are left over")
    return found


def _attribute(node: Node, name: str) -> Any:  # noqa: ANN401 (a GraphDef value: text, number, flag, list or shape)
    value = node.get("attr", {}).get(name, {})
    if "list" in value:
        texts = value["list"].get("s")
        return (
            [_text(text) for text in texts]
            if texts
            else [int(i) for i in value["list"].get("i", ())]
        )
    if "s" in value:
        return _text(value["s"])
    return int(value["i"]) if "i" in value else next(iter(value.values()), None)


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode()


class _Graph:
    """Nodes are converted when something asks for their output; each once."""

    def __init__(self, nodes: Sequence[Node], weights: dict[str, Array]) -> None:
        self._source = {node["name"]: node for node in nodes}
        self._weights = weights
        self._names: dict[str, str] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        results = []
        for index, name in enumerate(outputs):
            result = f"out{index}"
            self._nodes.append(helper.make_node("Identity", [self._value(name)], [result]))
            results.append(helper.make_tensor_value_info(result, TensorProto.FLOAT, None))
        graph = helper.make_graph(self._nodes, "tfjs", self._inputs, results, self._constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
        model.ir_version = 8
        return model

    def _value(self, reference: str) -> str:
        """The ONNX name of a TensorFlow output, `node` or `node:index`. What it needs is converted first, without recursion:
        the models are hundreds of nodes deep."""
        name, _, index = reference.partition(":")
        waiting = [name]
        while waiting:
            current = waiting[-1]
            needed = [] if current in self._names else self._missing(current)
            if needed:
                waiting.extend(needed)
                continue
            waiting.pop()
            if current not in self._names:
                self._names[current] = self._converted(current)
        return self._names[reference if index not in ("", "0") else name]

    def _missing(self, name: str) -> list[str]:
        if name in self._weights or self._source[name]["op"] == "Placeholder":
            return []
        inputs = (reference.partition(":")[0] for reference in self._source[name].get("input", ()))
        return [
            i
            for i in inputs
            if i not in self._names and i not in self._weights and not self._is_constant(i)
        ]

    def _is_constant(self, name: str) -> bool:
        """Whether it is made of weights alone; such sums are no deeper than two or three nodes."""
        if name in self._weights:
            return True
        node = self._source[name]
        inputs = (reference.partition(":")[0] for reference in node.get("input", ()))
        return node["op"] in ("SparseToDense", "AddV2") and all(map(self._is_constant, inputs))

    def _constant(self, reference: str) -> Array:
        """A weight, or what is made of weights alone."""
        name = reference.partition(":")[0]
        if name not in self._weights:
            node = self._source[name]
            if not self._is_constant(name):
                raise UnknownOperator(f"{name} ({node['op']}) should be a constant")
            inputs = [self._constant(i) for i in node["input"]]
            self._weights[name] = np.add(*inputs) if node["op"] == "AddV2" else _dense(*inputs)
        return self._weights[name]

    def _add(self, operator: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401 (what `make_node` takes)
        output = f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def _stored(self, array: Array) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def _integers(self, values: Sequence[int] | Array) -> str:
        return self._stored(np.asarray(values, np.int64))

    def _converted(self, name: str) -> str:
        if name in self._weights or self._is_constant(name):
            return self._stored(self._constant(name))
        node = self._source[name]
        operator, references = node["op"], node.get("input", [])
        if operator == "Placeholder":
            shape = [int(size["size"]) for size in _attribute(node, "shape")["dim"]]
            self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
            return name
        if operator in _CONVOLUTIONS:
            return self._convolution(node)
        if operator in _BINARY:
            return self._add(_BINARY[operator], *map(self._value, references))
        if operator == "ConcatV2":
            axis = int(self._constant(references[-1]))
            return self._add("Concat", *map(self._value, references[:-1]), axis=axis)
        return self._of_one(name, node, self._value(references[0]), references)

    def _of_one(self, name: str, node: Node, x: str, references: list[str]) -> str:
        """Operators of one tensor and constants."""
        operator: str = node["op"]
        match operator:
            case "Identity":
                return x
            case _ if operator in _UNARY:
                return self._add(operator, x)
            case "Relu6":
                return self._relu6(x)
            case "LeakyRelu":
                return self._add("LeakyRelu", x, alpha=float(_attribute(node, "alpha")))
            case "MaxPool":
                return self._max_pool(node, x)
            case "ResizeBilinear":
                return self._resize(node, x, self._constant(references[1]))
            case "Mean":
                axes = [int(axis) for axis in np.atleast_1d(self._constant(references[1]))]
                keep = int(bool(_attribute(node, "keep_dims")))
                return self._add("ReduceMean", x, axes=axes, keepdims=keep)
            case "Reshape":
                return self._add("Reshape", x, self._integers(self._constant(references[1])))
            case "Transpose":
                return self._add("Transpose", x, perm=self._constant(references[1]).tolist())
            case "Pad" | "PadV2":
                around = self._integers(self._constant(references[1]).T.reshape(-1))
                fill = self._constant(references[2]) if node["op"] == "PadV2" else 0
                return self._add("Pad", x, around, self._stored(np.asarray(fill, np.float32)))
            case "SplitV":
                return self._split(name, x, *map(self._constant, references[1:]))
            case _:
                raise UnknownOperator(f"{name}: {operator}")

    def _channels_first(self, x: str) -> str:
        return self._add("Transpose", x, perm=[0, 3, 1, 2])

    def _channels_last(self, x: str) -> str:
        return self._add("Transpose", x, perm=[0, 2, 3, 1])

    def _relu6(self, x: str) -> str:
        bounds = (self._stored(np.asarray(bound, np.float32)) for bound in (0, 6))
        return self._add("Clip", x, *bounds)

    def _convolution(self, node: Node) -> str:
        weight = self._constant(node["input"][1])
        if "Depthwise" in node["op"]:
            height, width, channels, times = weight.shape
            kernel = weight.transpose(2, 3, 0, 1).reshape(channels * times, 1, height, width)
            groups = channels
        else:
            kernel, groups = weight.transpose(3, 2, 0, 1), 1
        fused = _attribute(node, "fused_ops") or []
        more = (
            [self._stored(self._constant(r)) for r in node["input"][2:]]
            if "BiasAdd" in fused
            else []
        )
        y = self._add(
            "Conv",
            self._channels_first(self._value(node["input"][0])),
            self._stored(kernel),
            *more,
            group=groups,
            kernel_shape=list(kernel.shape[2:]),
            strides=_attribute(node, "strides")[1:3],
            dilations=(_attribute(node, "dilations") or [1, 1, 1, 1])[1:3],
            auto_pad=_padding(node),
        )
        for operator in fused:
            if operator == "Relu6":
                y = self._relu6(y)
            elif operator in _UNARY:
                y = self._add(operator, y)
            elif operator != "BiasAdd":
                raise UnknownOperator(f"{node['name']}: fused {operator}")
        return self._channels_last(y)

    def _max_pool(self, node: Node, x: str) -> str:
        y = self._add(
            "MaxPool",
            self._channels_first(x),
            kernel_shape=_attribute(node, "ksize")[1:3],
            strides=_attribute(node, "strides")[1:3],
            auto_pad=_padding(node),
        )
        return self._channels_last(y)

    def _resize(self, node: Node, x: str, size: Array) -> str:
        first = self._channels_first(x)
        outer = self._add(
            "Slice", self._add("Shape", first), self._integers([0]), self._integers([2])
        )
        sizes = self._add("Concat", outer, self._integers(size), axis=0)
        mode = "half_pixel" if _attribute(node, "half_pixel_centers") else "asymmetric"
        if _attribute(node, "align_corners"):
            mode = "align_corners"
        resized = self._add(
            "Resize", first, "", "", sizes, mode="linear", coordinate_transformation_mode=mode
        )
        return self._channels_last(resized)

    def _split(self, name: str, x: str, sizes: Array, axis: Array) -> str:
        parts = [f"{name}:{index}" for index in range(len(sizes))]
        inputs = [x, self._integers(sizes)]
        self._nodes.append(helper.make_node("Split", inputs, parts, axis=int(axis)))
        self._names |= {part: part for part in parts}
        return parts[0]


def _dense(index: Array, shape: Array, values: Array, default: Array) -> Array:
    """TensorFlow's SparseToDense."""
    dense = np.full(shape, default, values.dtype)
    dense[index.reshape(-1) if dense.ndim == 1 else tuple(index.T)] = values
    return dense


def _padding(node: Node) -> str:
    padding = _attribute(node, "padding")
    if padding not in ("SAME", "VALID"):
        raise UnknownOperator(f"{node['name']}: padding {padding}")
    return "SAME_UPPER" if padding == "SAME" else "VALID"


OUTPUTS = {
    "nanodet": ("Identity", *(f"Identity_{index}" for index in range(1, 6))),
    # the model's own last step keeps the best hundred by a rule of its own: we take what stands before it
    "centernet": ("tower_0/keypoints", "tower_0/wh"),
}


def build(source: Path, folder: Path) -> None:
    """Write one graph for each detector into `folder`; `source`: one of their JSON files, the others lie beside it."""
    for name, outputs in OUTPUTS.items():
        convert(source.parent / f"{name}.json", outputs, folder / f"{name}.onnx")
