"""A user's audio as the thinker hears it: mel features, and how many tokens they become.

Also turns a model's samples into the protocol's s16le (`s16le`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from session_server.types.audio import INPUT_RATE

_HOP = 160
_LEAST = INPUT_RATE // 10
"""Shorter sounds are padded: the encoder's convolutions need some frames."""

Tensor = Any


class AudioEncoderInput:
    """Feature extractor and audio tower. `tokens_of`: mel frames to tokens. `most_s`: of a longer sound the end is heard."""

    def __init__(
        self,
        folder: Path,
        tower: Any,  # noqa: ANN401
        tokens_of: Callable[[int], int],
        most_s: int,
    ) -> None:
        from transformers import AutoFeatureExtractor

        self._extract = AutoFeatureExtractor.from_pretrained(folder, local_files_only=True)
        self._tower = tower
        self._tokens_of = tokens_of
        self._most = max(_LEAST, most_s * INPUT_RATE // _HOP * _HOP)

    def tokens(self, pcm: bytes) -> int:
        """How many tokens this sound is."""
        return self._tokens_of(self._frames(len(pcm) // 2))

    def hear(self, pcm: bytes) -> Tensor:
        """Embeddings [tokens, size] of s16le at INPUT_RATE."""
        samples = np.frombuffer(pcm, "<i2")[-self._most :].astype(np.float32) / 32768
        frames = self._frames(len(samples))
        samples = np.pad(samples, (0, frames * _HOP - len(samples)))
        features = self._extract(
            samples,
            sampling_rate=INPUT_RATE,
            padding=False,
            truncation=False,
            return_tensors="pt",
        )["input_features"][0][:, :frames]
        weight = next(self._tower.parameters())
        heard = self._tower(
            features.to(weight.device, weight.dtype),
            feature_lens=torch.tensor([frames], device=weight.device),
        )
        return heard.last_hidden_state

    def _frames(self, samples: int) -> int:
        return -(-max(_LEAST, min(samples, self._most)) // _HOP)


def s16le(wave: Tensor) -> bytes:
    """Samples in -1..1, on any device, as 16 bit little endian."""
    samples = (wave * 32767.0).round().clamp(-32768, 32767).to(torch.int16)
    pcm: bytes = samples.cpu().numpy().astype("<i2").tobytes()
    return pcm
