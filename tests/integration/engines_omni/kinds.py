"""The families of Omni models that run as our stages, and what tests have to know of each."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any


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

    @property
    def eyes(self) -> ModuleType:
        """Of the vision stage."""
        return importlib.import_module(f"engines.omni.{self.vision}")

    def tiny(self, folder: Path) -> Path:
        module, _, function = self.maker.partition(":")
        made: Path = getattr(importlib.import_module(module), function)(folder)
        return made

    @property
    def modules(self) -> tuple[ModuleType, ...]:
        """Of thinker, talker and vocoder."""
        return tuple(importlib.import_module(f"engines.omni.{stage}") for stage in self.stages)

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
    ("qwen3_thinker", "qwen3_talker", "code2wav"),
    frame=1920,
    tail=555,
    sound_tokens_s=13,
    groups=16,
    codes=2048,
    voices="aiden, chelsie, ethan",
    vision="qwen3_vision",
)
QWEN2_5 = Kind(
    "qwen2.5-omni",
    "engines.omni.tiny2_5:tiny_qwen2_5",
    ("qwen2_5_thinker", "qwen2_5_talker", "token2wav"),
    frame=480,
    tail=0,
    sound_tokens_s=25,
    groups=1,
    codes=8193,
    voices="chelsie, ethan",
    vision="qwen2_5_vision",
)
KINDS = (QWEN3, QWEN2_5)
