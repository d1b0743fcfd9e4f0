"""TensorFlow.js graphs, converted: what they compute is compared with numpy."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from engines.vision.detector_graphs import UnknownOperator, convert

pytestmark = pytest.mark.unit

Node = dict[str, Any]


def text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def numbers(*values: int) -> dict[str, Any]:
    return {"list": {"i": [str(value) for value in values]}}


def node(name: str, op: str, *inputs: str, **attributes: Any) -> Node:
    return {"name": name, "op": op, "input": list(inputs), "attr": attributes}


def placeholder(*shape: int) -> Node:
    dims = {"dim": [{"size": str(size)} for size in shape]}
    return node("x", "Placeholder", shape={"shape": dims})


def model(
    folder: Path, nodes: list[Node], weights: dict[str, np.ndarray], stored: str | None = None
) -> Path:
    data, manifest = b"", []
    for name, array in weights.items():
        entry: dict[str, Any] = {
            "name": name,
            "shape": list(array.shape),
            "dtype": str(array.dtype),
        }
        if stored is not None and array.dtype == np.float32:
            entry["quantization"] = {"dtype": stored}
            array = array.astype(stored)
        manifest.append(entry)
        data += array.tobytes()
    (folder / "m.bin").write_bytes(data)
    whole = {
        "modelTopology": {"node": nodes + [node(name, "Const") for name in weights]},
        "weightsManifest": [{"paths": ["m.bin"], "weights": manifest}],
    }
    path = folder / "m.json"
    path.write_text(json.dumps(whole))
    return path


def run(path: Path, output: str, x: np.ndarray) -> np.ndarray:
    target = path.with_suffix(".onnx")
    convert(path, [output], target)
    session = ort.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.fixture
def noise() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.mark.parametrize("stored", [None, "float16"])
def test_a_convolution_with_bias_and_relu6(
    tmp_path: Path, noise: np.random.Generator, stored: str | None
) -> None:
    x = noise.normal(size=(1, 5, 5, 2)).astype(np.float32)
    kernel = noise.normal(size=(3, 3, 2, 4)).astype(np.float16).astype(np.float32) * 4
    bias = np.asarray([0, 1, -1, 8], np.float32)
    nodes = [
        placeholder(1, 5, 5, 2),
        node(
            "y", "_FusedConv2D", "x", "k", "b",
            strides=numbers(1, 1, 1, 1), dilations=numbers(1, 1, 1, 1), padding={"s": text("VALID")},
            fused_ops={"list": {"s": [text("BiasAdd"), text("Relu6")]}},
        ),
    ]  # fmt: skip
    got = run(model(tmp_path, nodes, {"k": kernel, "b": bias}, stored), "y", x)
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(0, 1))
    want = np.clip(np.einsum("hwcij,ijco->hwo", windows, kernel) + bias, 0, 6)
    np.testing.assert_allclose(got[0], want, rtol=1e-5, atol=1e-5)


def test_a_depthwise_convolution_keeps_channels_apart(
    tmp_path: Path, noise: np.random.Generator
) -> None:
    x = noise.normal(size=(1, 4, 4, 2)).astype(np.float32)
    kernel = noise.normal(size=(1, 1, 2, 1)).astype(np.float32)
    nodes = [
        placeholder(1, 4, 4, 2),
        node("y", "DepthwiseConv2dNative", "x", "k", strides=numbers(1, 2, 2, 1), padding={"s": text("SAME")}),
    ]  # fmt: skip
    got = run(model(tmp_path, nodes, {"k": kernel}), "y", x)
    np.testing.assert_allclose(got, x[:, ::2, ::2] * kernel[0, 0, :, 0], rtol=1e-6)


def test_parts_of_a_split_are_named_by_index(tmp_path: Path, noise: np.random.Generator) -> None:
    x = noise.normal(size=(1, 2, 2, 6)).astype(np.float32)
    weights = {"sizes": np.asarray([2, 4], np.int32), "axis": np.asarray(3, np.int32)}
    nodes = [
        placeholder(1, 2, 2, 6),
        node("s", "SplitV", "x", "sizes", "axis"),
        node("y", "Sigmoid", "s:1"),
    ]
    got = run(model(tmp_path, nodes, weights), "y", x)
    np.testing.assert_allclose(got, 1 / (1 + np.exp(-x[..., 2:])), rtol=1e-5)


def test_shapes_made_of_constants_are_folded(tmp_path: Path, noise: np.random.Generator) -> None:
    x = noise.normal(size=(1, 4, 4, 3)).astype(np.float32)
    weights = {
        "index": np.asarray([[0], [1]], np.int32),
        "shape": np.asarray([3], np.int32),
        "values": np.asarray([1, 15], np.int32),
        "default": np.asarray(0, np.int32),
        "more": np.asarray([0, 1, 3], np.int32),
    }
    nodes = [
        placeholder(1, 4, 4, 3),
        node("dense", "SparseToDense", "index", "shape", "values", "default"),
        node("sum", "AddV2", "dense", "more"),
        node("y", "Reshape", "x", "sum"),
    ]
    assert run(model(tmp_path, nodes, weights), "y", x).shape == (1, 16, 3)


def test_padding_fills_around(tmp_path: Path) -> None:
    x = np.ones((1, 2, 2, 1), np.float32)
    around = np.asarray([[0, 0], [1, 0], [0, 2], [0, 0]], np.int32)
    nodes = [placeholder(1, 2, 2, 1), node("y", "Pad", "x", "around")]
    got = run(model(tmp_path, nodes, {"around": around}), "y", x)
    np.testing.assert_array_equal(got, np.pad(x, around))


def test_an_operator_that_is_not_known_is_named(tmp_path: Path) -> None:
    path = model(tmp_path, [placeholder(1, 2), node("y", "Erf", "x")], {})
    with pytest.raises(UnknownOperator, match="y: Erf"):
        convert(path, ["y"], tmp_path / "m.onnx")


def test_weights_that_are_left_over_are_an_error(tmp_path: Path) -> None:
    path = model(tmp_path, [placeholder(1, 2)], {"w": np.zeros(3, np.float32)})
    with (tmp_path / "m.bin").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ValueError, match="4 bytes of weights are left over"):
        convert(path, ["x"], tmp_path / "m.onnx")
