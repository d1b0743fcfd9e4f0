"""The voices that a model was published with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from session_server.types.errors import EngineFault, ModelsMissing, one_line

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
