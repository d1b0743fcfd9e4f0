"""The families of Omni models that run as our stages, and what tests have to know of each."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from engines.registry import ENGINES


@dataclass(frozen=True)
class Factory:
    """Of one engine, by its registered name."""

    name: str

    @property
    def place(self) -> tuple[ModuleType, str]:
        """The module, and the name of the factory in it."""
        module, _, function = ENGINES[self.name].partition(":")
        return importlib.import_module(module), function

    def create(self, *args: Any) -> Any:
        return getattr(*self.place)(*args)


@dataclass(frozen=True)
class Kind:
    """`tail`: samples by which an answer is shorter than its frames. `sound_tokens_s`: of a second of sound. `groups`, `codes`: of a
    frame."""

    name: str
    maker: str
    stages: tuple[str, str, str]
    frame: int
    tail: int
    sound_tokens_s: int
    groups: int
    codes: int
    voices: str
    vision: str
    picture_token: str
    sound_token: str

    @property
    def eyes(self) -> Factory:
        """Of the vision stage."""
        return Factory(self.vision)

    def tiny(self, folder: Path) -> Path:
        module, _, function = self.maker.partition(":")
        made: Path = getattr(importlib.import_module(module), function)(folder)
        return made

    @property
    def factories(self) -> tuple[Factory, ...]:
        """Of thinker, talker and vocoder."""
        return tuple(Factory(name) for name in self.stages)

    def samples(self, frames: int) -> int:
        return frames * self.frame - self.tail

    @property
    def config(self) -> Path:
        return Path(f"configs/{self.name}.yaml")

    def random_codes(self, frames: int, seed: int) -> Any:
        import torch

        chance = torch.Generator().manual_seed(seed)
        return torch.randint(0, self.codes, (frames, self.groups), generator=chance)


QWEN3 = Kind(
    "qwen3-omni",
    "engines.omni.tiny:tiny_qwen3",
    ("omni.qwen3_thinker", "omni.qwen3_talker", "omni.qwen3_code2wav"),
    frame=1920,
    tail=555,
    sound_tokens_s=13,
    groups=16,
    codes=2048,
    voices="aiden, chelsie, ethan",
    vision="omni.qwen3_vision",
    picture_token="<|image_pad|>",
    sound_token="<|audio_pad|>",
)
QWEN2_5 = Kind(
    "qwen2.5-omni",
    "engines.omni.tiny2_5:tiny_qwen2_5",
    ("omni.qwen2_5_thinker", "omni.qwen2_5_talker", "omni.qwen2_5_token2wav"),
    frame=480,
    tail=0,
    sound_tokens_s=25,
    groups=1,
    codes=8193,
    voices="chelsie, ethan",
    vision="omni.qwen2_5_vision",
    picture_token="<|IMAGE|>",
    sound_token="<|AUDIO|>",
)
KINDS = (QWEN3, QWEN2_5)
