"""Whether the detectors gain by a batch: the same graphs over one picture and over two.

    python -m tests.benchmarks.vision_batches

Printed is the processor time for each picture in milliseconds (one thread, median of `RUNS`, in turns) and the largest difference between what a
batch gives and what single pictures give. The graphs are of one picture: those of two are made of them here.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from engines.model_store.recipes import CENTERNET, NANODET
from engines.model_store.store import ModelStore

RUNS = 30
SHAPES = {NANODET: (3, 416, 416), CENTERNET: (512, 512, 3)}


def batched(path: str, size: int) -> bytes:
    """The graph for `size` pictures at once: its input, and every constant that a reshape reads."""
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = size
    shapes = {name for n in model.graph.node if n.op_type == "Reshape" for name in n.input[1:2]}
    for constant in model.graph.initializer:
        if constant.name in shapes:
            shape = numpy_helper.to_array(constant).copy()
            shape[0] = size if shape[0] == 1 else shape[0]
            constant.CopyFrom(numpy_helper.from_array(shape, constant.name))
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    return model.SerializeToString()


def opened(graph: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def main() -> None:
    store = ModelStore()
    for name, shape in SHAPES.items():
        sessions = {size: opened(batched(str(store.path(name)), size)) for size in (1, 2)}
        feed = sessions[1].get_inputs()[0].name
        pictures = np.random.default_rng(0).random((2, *shape), np.float32)
        single = [sessions[1].run(None, {feed: pictures[i : i + 1]}) for i in range(2)]
        both = sessions[2].run(None, {feed: pictures})
        apart = max(
            float(np.abs(np.concatenate(alone) - together).max())
            for *alone, together in zip(*single, both, strict=True)
        )
        times: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(RUNS):
            for size, session in sessions.items():
                begun = time.thread_time()
                session.run(None, {feed: pictures[:size]})
                times[size].append(1e3 * (time.thread_time() - begun) / size)
        said = ", ".join(f"batch of {n}: {statistics.median(t):.1f} ms" for n, t in times.items())
        print(f"{name}: {said} a picture; largest difference {apart:.1g}")


if __name__ == "__main__":
    main()
