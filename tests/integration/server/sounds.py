"""What the simulated user says: reproducible, and voiced enough for the detector. s16le at 24 kHz."""

from __future__ import annotations

import functools

from tests.integration.server.caller import RATE
from tests.unit.audio.signals import speechlike


@functools.cache
def speech(seconds: float, seed: int = 1) -> bytes:
    """Syllables without words."""
    return bytes(speechlike(seconds, RATE, seed, rms=5000.0).astype("<i2").tobytes())
