"""From the session's output (s16le at OUTPUT_RATE) to the client's format.

Owns the resampler's state of one response's stream. PCM passes through untouched; for G.711 the last
2-3 ms stay inside the filter until `last`. Client sample m lies at output time m / rate: no shift.
"""

from __future__ import annotations

from session_server.audio.formats import decode_samples, encode_samples
from session_server.audio.resample import FirResampler
from session_server.types.audio import OUTPUT_RATE, AudioFormat


class OutputEncoder:
    """One response's output stream at a time: `push` slices in order, `reset` when it is cut off."""

    def __init__(self, format: AudioFormat) -> None:
        self.format = format
        self._resampler = FirResampler(OUTPUT_RATE, format.rate)

    def push(self, pcm: bytes, last: bool = False) -> bytes:
        """The client's bytes for these whole samples; `last` also gives what is inside and starts anew."""
        if self.format is AudioFormat.PCM:
            return pcm
        encoded = encode_samples(
            self._resampler.push(decode_samples(pcm, AudioFormat.PCM)), self.format
        )
        if last:
            encoded += encode_samples(self._resampler.flush(), self.format)
        return encoded

    def reset(self) -> None:
        """Forget the stream (a fence): nothing of it comes out any more."""
        self._resampler.reset()
