"""What an Omni stage lacks on this machine beside packages: their version, the model's folder, the device and its memory. Loads nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from engines.omni.options import OmniOptions, Options, read_options
from engines.omni.parts import Family, Part, require_device, require_folder
from session_server.types.errors import SessionServerError

TRANSFORMERS = "5.19.0"
"""The version whose names these engines use (engines/omni/requirements.txt)."""
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_HEADER_MAX = 100_000_000


def lacking(
    options: Mapping[str, object], defaults: Options, family: Family, part: Part
) -> list[str]:
    """A line for each thing that is not here, with what helps."""
    try:
        read = read_options(options, defaults)
    except ValueError as error:
        return [str(error)]
    lines = _version_lines()
    try:
        require_folder(Path(read.weights).expanduser(), family)
    except SessionServerError as error:
        return [*lines, str(error)]
    try:
        require_device(read.device)
    except SessionServerError as error:
        return [*lines, str(error)]
    return lines + _memory_lines(read, part)


def _version_lines() -> list[str]:
    try:
        found = version("transformers")
    except PackageNotFoundError:
        return []
    if found == TRANSFORMERS:
        return []
    return [
        f"transformers {found} is installed; this engine is written for {TRANSFORMERS} (engines/omni/requirements.txt)"
    ]


def _memory_lines(options: OmniOptions, part: Part) -> list[str]:
    device = torch.device(options.device)
    if device.type != "cuda":
        return []
    free, _ = torch.cuda.mem_get_info(device)
    needed = part_bytes(Path(options.weights).expanduser(), part, options.dtype)
    if needed <= free:
        return []
    return [
        f"the {part.name}'s weights take {needed >> 20} MiB, and {free >> 20} MiB of {options.device} are free;"
        " engine option device may name another"
    ]


def part_bytes(folder: Path, part: Part, dtype: str) -> int:
    """Memory of a part's weights in that type. From the files' headers; 0 for files that cannot be read."""
    return (
        sum(_numbers(path, f"{part.name}.") for path in folder.glob("*.safetensors"))
        * _BYTES[dtype]
    )


def _numbers(path: Path, prefix: str) -> int:
    """How many numbers the weights of that prefix hold."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(size, _HEADER_MAX)))
    except (OSError, ValueError):
        return 0
    total = 0
    for name, weight in header.items():
        if name.startswith(prefix):
            count = 1
            for length in weight["shape"]:
                count *= length
            total += count
    return total
