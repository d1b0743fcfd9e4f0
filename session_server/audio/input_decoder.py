"""From the client's bytes to the session's input time line.

Owns the odd byte between appends, G.711 expansion and the resampler's state. Output is int16 at
INPUT_RATE. Invariant: after N client samples between N * 16000 / rate - latency_samples and
N * 16000 / rate samples have come out (one more at most after a flush), however the bytes were cut.
"""

from __future__ import annotations

import math

from session_server.audio.formats import Int16, decode_samples
from session_server.audio.resample import FirResampler
from session_server.types.audio import INPUT_RATE, AudioFormat


class InputDecoder:
    """One session's input stream in one format; a new format needs a new decoder."""

    def __init__(self, format: AudioFormat) -> None:
        self.format = format
        self.client_samples = 0
        self._odd = b""
        self._resampler = FirResampler(format.rate, INPUT_RATE)
        self.latency_samples = math.ceil(self._resampler.latency_s * INPUT_RATE)
        """At most so many samples at INPUT_RATE are still inside the filter."""

    def push(self, data: bytes) -> Int16:
        """Samples that are final after these bytes; an incomplete sample waits for its other byte."""
        if self.format.sample_bytes == 2:
            data = self._odd + data
            whole = len(data) & ~1
            self._odd, data = data[whole:], data[:whole]
        pcm = decode_samples(data, self.format)
        self.client_samples += len(pcm)
        return self._resampler.push(pcm)

    def flush(self) -> Int16:
        """The last samples of a stream that ends here; drops an odd byte. What follows is a new stream."""
        self._odd = b""
        return self._resampler.flush()

    def reset(self) -> None:
        """The buffer was cleared: what is inside belongs to it and goes, an odd byte too."""
        self._odd = b""
        self._resampler.reset()
        self.client_samples = 0
