"""Builds the detectors' ONNX graphs from their TensorFlow.js files (`models fetch --vision`)."""

from __future__ import annotations

from pathlib import Path

from engines.vision.tfjs_graph import convert

OUTPUTS = {
    "nanodet": ("Identity", *(f"Identity_{index}" for index in range(1, 6))),
    # the model's own last step keeps the best hundred by a rule of its own: we take what stands before it
    "centernet": ("tower_0/keypoints", "tower_0/wh"),
}


def build(source: Path, folder: Path) -> None:
    """Write one graph for each detector into `folder`; `source`: one of their JSON files, the others lie beside it."""
    for name, outputs in OUTPUTS.items():
        convert(source.parent / f"{name}.json", outputs, folder / f"{name}.onnx")
