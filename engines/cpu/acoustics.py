"""What travels between talker, codec and vocoder, and the numbers that the three share.

A frame is 12.5 ms: `HOP` samples at `RATE`. Arrays are float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

RATE = 24_000
HOP = 300
WINDOW = 1_200
BINS = WINDOW // 2 + 1
CHANNELS = 130
VOICES = ("heart",)

Array = npt.NDArray[np.float32]
ComplexArray = npt.NDArray[np.complex64]


@dataclass(frozen=True, slots=True)
class AcousticFeatures:
    """Talker to codec: `features` [CHANNELS, F] and pitch `f0` [F] in Hz."""

    features: Array
    f0: Array

    @property
    def units(self) -> int:
        return int(self.f0.shape[0])


@dataclass(frozen=True, slots=True)
class SpectralFrames:
    """Codec to vocoder: n consecutive frames.

    The five spectra are [BINS, n]; `pulses` is the voice's pulse train under the windows of these frames,
    (n - 1) * HOP + WINDOW samples.
    """

    harmonic: Array
    harmonic_phase: Array
    noise: Array
    free: Array
    free_phase: Array
    pulses: Array

    @property
    def units(self) -> int:
        return int(self.harmonic.shape[1])

    def part(self, begin: int, end: int) -> SpectralFrames:
        """The frames begin..end."""
        return SpectralFrames(
            self.harmonic[:, begin:end],
            self.harmonic_phase[:, begin:end],
            self.noise[:, begin:end],
            self.free[:, begin:end],
            self.free_phase[:, begin:end],
            self.pulses[begin * HOP : (end - 1) * HOP + WINDOW],
        )


def require_voice(name: str) -> None:
    """Raises ValueError for a voice that the graphs do not have."""
    if name not in VOICES:
        raise ValueError(f"no voice {name!r}: this engine has {', '.join(VOICES)}")


def pulse_train(f0: Array) -> Array:
    """The whole clause's pulses, padded so that frame i's window is samples i*HOP .. i*HOP + WINDOW."""
    from hibari import dsp

    pulses: Any = dsp.pulses(f0)
    padded: Array = np.pad(pulses, WINDOW // 2, mode="reflect").astype(np.float32, copy=False)
    return padded
