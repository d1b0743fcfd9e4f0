"""An Omni model's published folder: its parts, its voices, and what a stage lacks here.

Each part is read by itself: its module is made from the model's own config and only its weights are
read, so that stages may be on different devices. `lacking` says what a stage lacks on this machine
beside packages: their version, the model's folder, the device and its memory. It loads nothing.

Errors: what is missing is said in one line, before anything is loaded.
"""

from __future__ import annotations

import importlib
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import torch

from engines.omni.options import OmniOptions, Options, read_options
from session_server.types.errors import EngineFault, ModelsMissing, SessionServerError, one_line

Tensor = Any

LOADING = threading.Lock()
"""Held by a stage while it loads: transformers imports its modules as they are asked for, which two threads must not do at once."""


@dataclass(frozen=True, slots=True)
class ModelPart:
    """One part of a family's model: what it is called there (a part of a part with a dot), and its class. `model_type`: of its config,
    where that names none. `config`: what its config is called, where that is not after its name."""

    name: str
    kind: str
    model_type: str = ""
    config: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """Models of one kind: what their config calls them, and where transformers has their classes."""

    model_type: str
    title: str
    module: str
    config: str
    vision: ModelPart
    thinker: ModelPart
    talker: ModelPart
    vocoder: ModelPart


QWEN3 = Family(
    "qwen3_omni_moe",
    "Qwen3-Omni",
    "transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe",
    "Qwen3OmniMoeConfig",
    ModelPart("thinker.visual", "Qwen3OmniMoeVisionEncoder", config="thinker_config.vision_config"),
    ModelPart("thinker", "Qwen3OmniMoeThinkerForConditionalGeneration"),
    # without a kind transformers would not know that the published experts are to be stacked
    ModelPart("talker", "Qwen3OmniMoeTalkerForConditionalGeneration", "qwen3_omni_moe"),
    ModelPart("code2wav", "Qwen3OmniMoeCode2Wav"),
)
QWEN2_5 = Family(
    "qwen2_5_omni",
    "Qwen2.5-Omni",
    "transformers.models.qwen2_5_omni.modeling_qwen2_5_omni",
    "Qwen2_5OmniConfig",
    ModelPart("thinker.visual", "Qwen2_5OmniVisionEncoder", config="thinker_config.vision_config"),
    ModelPart("thinker", "Qwen2_5OmniThinkerForConditionalGeneration"),
    ModelPart("talker", "Qwen2_5OmniTalkerForConditionalGeneration"),
    ModelPart("token2wav", "Qwen2_5OmniToken2WavModel"),
)


class Weights:
    """The model in `options.weights`. Raises ModelsMissing when it is not there, EngineFault when it cannot be used."""

    def __init__(self, options: OmniOptions, family: Family) -> None:
        self._options = options
        self._family = family
        self.folder = Path(options.weights).expanduser()
        require_folder(self.folder, family)
        self.config = self._read_config()
        if options.threads:
            torch.set_num_threads(options.threads)

    def module(self, part: ModelPart) -> Any:  # noqa: ANN401 - a module of torch
        """The part on its device, ready to be called."""
        require_device(self._options.device)
        config = attrgetter(part.config or f"{part.name}_config")(self.config)
        config.model_type = part.model_type or config.model_type
        kind = getattr(importlib.import_module(self._family.module), part.kind)
        model, report = kind.from_pretrained(
            self.folder,
            config=config,
            dtype=getattr(torch, self._options.dtype),
            attn_implementation=self._options.attention,
            key_mapping={rf"^{re.escape(part.name)}\.": ""},
            local_files_only=True,
            output_loading_info=True,
        )
        if report["missing_keys"]:
            missing = sorted(report["missing_keys"])
            raise EngineFault(
                f"{self.folder} lacks weights of the {part.name}: {missing[0]}, {len(missing)} in all"
            )
        return model.eval().to(self._options.device)

    def rows(self, name: str, numbers: Sequence[int]) -> Tensor:
        """Some rows of one weight, without the rest of it. Raises EngineFault when it is not there."""
        from safetensors import safe_open

        for path in sorted(self.folder.glob("*.safetensors")):
            with safe_open(path, framework="pt") as file:
                if name in file.keys():  # noqa: SIM118 - not a mapping
                    weight = file.get_slice(name)
                    return torch.cat([weight[number : number + 1] for number in numbers])
        raise EngineFault(f"{self.folder} lacks the weight {name}")

    def _read_config(self) -> Any:  # noqa: ANN401
        import transformers
        from transformers.utils import logging

        logging.set_verbosity_error()  # it would report each part's weights as unexpected in the others
        logging.disable_progress_bar()
        return getattr(transformers, self._family.config).from_pretrained(self.folder)


def require_folder(folder: Path, family: Family) -> None:
    """Raises ModelsMissing or EngineFault, one line, unless a whole model of that family is there."""
    path = folder / "config.json"
    try:
        kind = json.loads(path.read_text()).get("model_type")
    except OSError:
        raise ModelsMissing(
            f"{folder} has no config.json: engine option weights must name the folder of a {family.title} model"
        ) from None
    except (ValueError, AttributeError) as error:
        raise EngineFault(f"{path} cannot be read: {error}") from None
    if kind != family.model_type:
        raise EngineFault(f"{path} is of a {kind} model; this engine runs {family.model_type}")
    lacking = _missing_files(folder)
    if lacking:
        raise ModelsMissing(f"{folder} has no {lacking}: its download is not whole")


def require_device(device: str) -> None:
    """Raises EngineFault, one line, unless the device is here."""
    try:
        kind = torch.device(device)
    except RuntimeError as error:
        raise EngineFault(f"engine option device: {one_line(error, 120)}") from None
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind.type == "cuda" and (kind.index or 0) >= count:
        raise EngineFault(f"engine option device: there is no {device} on this machine")


def _missing_files(folder: Path) -> str:
    """The first file of weights that is not there; empty when all are."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return "" if any(folder.glob("*.safetensors")) else "*.safetensors files"
    try:
        files = set(json.loads(index.read_text())["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError):
        return f"{index.name} that can be read"
    return next((name for name in sorted(files) if not (folder / name).exists()), "")


TRANSFORMERS = "5.19.0"
"""The version whose names these engines use (engines/omni/requirements.txt)."""
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_HEADER_MAX = 100_000_000


def lacking(
    options: Mapping[str, object], defaults: Options, family: Family, part: ModelPart
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


def _memory_lines(options: OmniOptions, part: ModelPart) -> list[str]:
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


def part_bytes(folder: Path, part: ModelPart, dtype: str) -> int:
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


Voice = TypeVar("Voice")


def read_voices(folder: Path) -> dict[str, dict[str, Any]]:
    """Of Qwen2.5-Omni, by name in small letters: `bos_token`, the text token that begins its speech; `cond` [1, size] and
    `ref_mel` [1, frames, bins], the vocoder's. Raises ModelsMissing or EngineFault."""
    path = folder / "spk_dict.pt"
    if not path.exists():
        raise ModelsMissing(f"{folder} has no {path.name}: its download is not whole")
    try:
        voices = torch.load(path, weights_only=True, map_location="cpu")
        return {
            name.lower(): {key: voice[key] for key in ("bos_token", "cond", "ref_mel")}
            for name, voice in voices.items()
        }
    except Exception as error:
        raise EngineFault(f"{path} cannot be read: {one_line(error, 120)}") from error


def known_voice(voices: Mapping[str, Voice], name: str) -> Voice:
    """What is kept for a name, in small letters. Raises ValueError that names those that there are."""
    if name.lower() not in voices:
        raise ValueError(f"the model has no voice {name!r}; it has {', '.join(sorted(voices))}")
    return voices[name.lower()]
