"""Samples as the protocol carries them."""

from __future__ import annotations

from typing import Any

import torch

Tensor = Any


def s16le(wave: Tensor) -> bytes:
    """Samples in -1..1, on any device, as 16 bit little endian."""
    samples = (wave * 32767.0).round().clamp(-32768, 32767).to(torch.int16)
    pcm: bytes = samples.cpu().numpy().astype("<i2").tobytes()
    return pcm
