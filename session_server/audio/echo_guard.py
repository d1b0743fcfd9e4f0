"""The server's own voice, coming back through the room, never interrupts it.

Owns the decision, frame by frame, whether the microphone holds nothing but the echo of what is playing.
Two questions, both answered from the playback that the ledger expects (`echo_path`): is there an
echo path (phases of microphone and far end agree at one delay), and is the frame no louder than its
echo would be? Someone speaking over the echo is louder in some bands; with headphones no path is found.
Network, device and room delays are unknown: the window spans -64 to +608 ms around the expected time.

Instants are nanoseconds of the session's clock. Frames are FRAME_SAMPLES int16 at INPUT_RATE and consecutive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from session_server.audio.echo_path import DelayTracker, LevelModel
from session_server.audio.echo_reference import (
    AHEAD,
    REACH,
    FarEndSpectra,
    PlaybackReference,
    microphone_views,
    to_position,
)
from session_server.audio.formats import Int16
from session_server.audio.vad import FRAME_SAMPLES
from session_server.types.audio import INPUT_RATE

_UNEXPLAINED = 0.65
"""An excess up to this is still echo: distortion and reverberation that the model does not know."""
_SURELY_ECHO = 0.05
_COHERENT, _MORE_THAN_TYPICAL = 4.0, 1.5
"""Frames correlated so far, and so much more than this path's echoes typically are, teach the level even if
they are louder than expected: the volume was turned up."""
_DOUBT_FRAMES = 4
"""So many frames in a row that are not echo while something plays: perhaps the delay jumped."""
_REANCHOR = INPUT_RATE * 150 // 1000
"""Arrival times jitter; beyond this the microphone's stream has a hole."""
_CUT_GRACE = INPUT_RATE // 5
"""What was sent goes on sounding for a while after a cut: network and device buffers."""
_UNHEARD = 0.05
_FAINT = 48
"""A frame that is less likely to be speech, and whose peak at int16 scale (-57 dBFS) is lower, interrupts nobody, echo or not."""
_LINGER_FRAMES = 30
"""So long such frames are still looked at: what comes between words teaches the path, too."""
_QUIET = 12
"""Peak at int16 scale below which a frame holds nothing to judge."""


@dataclass(frozen=True, slots=True)
class EchoVerdict:
    """What one frame is.

    `correlation`: significance, in standard deviations, of the correlation at the echo's delay (unrelated
    signals stay below 5). `residual_db`: what the echo does not explain, relative to the frame; 0 where
    no echo path is known.
    """

    is_echo: bool
    correlation: float = 0.0
    residual_db: float = 0.0


_NOT_ECHO = EchoVerdict(False)


class EchoGuard:
    """One session's guard. Costs nothing while nothing plays, or nobody speaks."""

    def __init__(self) -> None:
        self._reference = PlaybackReference()
        self._spectra = FarEndSpectra()
        self._delay = DelayTracker()
        self._level = LevelModel()
        self._mic_end: int | None = None
        self._typical = 0.0
        self._coherence = 0.0
        self._doubt = 0
        self._active = False
        self._unheard = _LINGER_FRAMES

    @property
    def delay_ms(self) -> float | None:
        """Delay of the echo behind the expected playback, once known."""
        lag = self._delay.lag
        if lag is None or not self._delay.found:
            return None
        return (lag - AHEAD * FRAME_SAMPLES) * 1000 / INPUT_RATE

    def playing(self, start_ns: int, pcm: bytes) -> None:
        """The listener should hear `pcm` (s16le at OUTPUT_RATE) from `start_ns` on."""
        self._reference.write(start_ns, pcm)

    def cut(self, now_ns: int) -> None:
        """A fence: what has not sounded by now never will, but for what is already on its way."""
        self._reference.truncate(to_position(now_ns) + _CUT_GRACE)

    def check(self, frame: Int16, end_ns: int, probability: float = 1.0) -> EchoVerdict:
        """Judge the next frame of the microphone, which ended at `end_ns` and is speech with that probability.

        Frames that nobody takes for speech cost nothing: a call where one side listens is silent on that side.
        """
        newest = self._place(end_ns) + AHEAD * FRAME_SAMPLES
        faint = probability < _UNHEARD and int(np.abs(frame).max()) < _FAINT
        self._unheard = self._unheard + 1 if faint else 0
        if self._unheard > _LINGER_FRAMES:
            self._reference.forget_before(newest - REACH - 2 * FRAME_SAMPLES)
            return _NOT_ECHO
        if not self._reference.sounds_between(newest - REACH, newest):
            self._reference.forget_before(newest - REACH)
            self._active = False
            return _NOT_ECHO
        if not self._active:
            self._active = True
            self._spectra.forget()
            self._delay.resume()
        self._reference.forget_before(newest - REACH - 2 * FRAME_SAMPLES)
        if int(np.abs(frame).max()) < _QUIET:
            return _NOT_ECHO
        self._spectra.advance(self._reference, newest)
        spectrum, powers = microphone_views(frame)
        self._delay.update(spectrum, self._spectra)
        self._level.hear(powers)
        return self._judge()

    def _judge(self) -> EchoVerdict:
        delay, powers = self._delay, self._spectra.powers
        if not delay.found or delay.lag is None:
            return _NOT_ECHO
        excess = self._level.excess(powers, delay.lag)
        self._coherence += 0.4 * (delay.instant - self._coherence)
        typical = self._typical
        louder = self._coherence > max(_COHERENT, _MORE_THAN_TYPICAL * typical)
        is_echo = excess < _UNEXPLAINED
        if is_echo:
            self._doubt = 0
            self._typical += 0.05 * (delay.instant - typical)
        else:
            self._doubt += 1
            if self._doubt % (4 * _DOUBT_FRAMES) == _DOUBT_FRAMES:
                delay.resume()
        clear = is_echo and (delay.instant > typical or excess < _SURELY_ECHO)
        if clear or louder:
            self._level.learn(powers, delay.lag)
        return EchoVerdict(is_echo, delay.strength, 10 * math.log10(max(excess, 1e-6)))

    def _place(self, end_ns: int) -> int:
        """The frame's end on the clock: consecutive, whatever the jitter of arrival."""
        arrived = to_position(end_ns)
        if self._mic_end is None:
            self._mic_end = arrived
            return arrived
        expected = self._mic_end + FRAME_SAMPLES
        if abs(arrived - expected) > _REANCHOR:
            self._delay.resume()
            self._spectra.forget()
            expected = arrived
        self._mic_end = expected
        return expected
