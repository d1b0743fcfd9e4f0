"""Opus, mono s16le: libopus by ctypes, and one packet for each outgoing frame.

The library is the one in PyAV's wheel (its file name is no API, so it is looked for), else the
system's. Opus takes and gives 24 and 16 kHz by itself, so that nothing is resampled anywhere. Calls
keep the interpreter's lock: each takes a tenth of a millisecond, and giving the lock up in between
would let a busy engine thread hold back the frames of every call.

An outgoing frame is FRAME_SAMPLES at OUTPUT_RATE. The encoder looks 6.5 ms ahead. Silence costs as
much as speech to encode, and a call is silent most of the time: once SETTLED_FRAMES of it have gone
through the encoder, its packet is sent again and again.

Units: samples of the state's own rate.

Errors: state is freed by `close`, or with the object; using it after that raises OpusError.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import weakref
from pathlib import Path
from typing import Protocol

import av

from session_server.transports.webrtc.playout import FRAME_SAMPLES
from session_server.types.audio import OUTPUT_RATE

LONGEST_PACKET_S = 0.12
"""What one packet can hold."""

_APPLICATION_VOIP = 2048
_APPLICATION_AUDIO = 2049
_SIGNAL_VOICE = 3001
_SIGNAL_MUSIC = 3002
_SET_BITRATE = 4002
_SET_COMPLEXITY = 4010
_SET_INBAND_FEC = 4012
_SET_PACKET_LOSS_PERC = 4014
_SET_DTX = 4016
_SET_SIGNAL = 4024
_RESET_STATE = 4028
_LONGEST_PACKET_BYTES = 1275


class OpusError(ValueError):
    """libopus refused; the text says what it calls the reason."""


def missing() -> str | None:
    """Why libopus cannot be used; None: it can."""
    try:
        _library()
    except (OSError, AttributeError) as fault:
        return f"libopus: {fault}"
    return None


@functools.cache
def _library() -> ctypes.PyDLL:
    beside_av = Path(av.__file__).parent.parent / "av.libs"
    found = sorted(str(path) for path in beside_av.glob("libopus-*.so*"))
    name = found[0] if found else ctypes.util.find_library("opus")
    if name is None:
        raise OSError("neither in the wheel of av nor on the system")
    library = ctypes.PyDLL(name)
    state, data, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32
    error = ctypes.POINTER(ctypes.c_int)
    library.opus_encoder_create.argtypes = [number, ctypes.c_int, ctypes.c_int, error]
    library.opus_decoder_create.argtypes = [number, ctypes.c_int, error]
    library.opus_encoder_create.restype = library.opus_decoder_create.restype = state
    library.opus_encoder_destroy.argtypes = library.opus_decoder_destroy.argtypes = [state]
    library.opus_encoder_destroy.restype = library.opus_decoder_destroy.restype = None
    library.opus_encoder_ctl.argtypes = library.opus_decoder_ctl.argtypes = [state, ctypes.c_int]
    library.opus_encode.argtypes = [state, data, ctypes.c_int, state, number]
    library.opus_decode.argtypes = [state, data, number, state, ctypes.c_int, ctypes.c_int]
    library.opus_strerror.restype = ctypes.c_char_p
    return library


def _checked(result: int) -> int:
    if result < 0:
        text: bytes = _library().opus_strerror(result)
        raise OpusError(text.decode())
    return result


class _State:
    """A block of libopus's own memory, freed once."""

    def __init__(self, kind: str, *arguments: int) -> None:
        library = _library()
        error = ctypes.c_int()
        create = getattr(library, f"opus_{kind}_create")
        self.address: int | None = create(*arguments, ctypes.byref(error))
        _checked(error.value)
        destroy = getattr(library, f"opus_{kind}_destroy")
        self._free = weakref.finalize(self, destroy, self.address)

    def close(self) -> None:
        self.address = None
        self._free()

    def used(self) -> int:
        """Its address, for a call."""
        if self.address is None:
            raise OpusError("closed already")
        return self.address


class Encoder:
    """Made for speech; it never stops sending in silence (no DTX).

    `light`: by transform (CELT) for as long as nothing is lost on the way, at a third of the cost; with losses by speech
    model (SILK and CELT), as otherwise always, since only that has copies of lost frames.
    """

    def __init__(self, rate: int, bit_rate: int, complexity: int, *, light: bool = False) -> None:
        application = _APPLICATION_AUDIO if light else _APPLICATION_VOIP
        self._state = _State("encoder", rate, 1, application)
        self._light = light
        self._out = ctypes.create_string_buffer(_LONGEST_PACKET_BYTES)
        self._encode = _library().opus_encode
        for key, value in (
            (_SET_BITRATE, bit_rate),
            (_SET_COMPLEXITY, complexity),
            (_SET_DTX, 0),
            (_SET_INBAND_FEC, 0),
        ):
            self._set(key, value)
        self._choose_model(loss=False)

    def encode(self, pcm: bytes) -> bytes:
        """One packet of one frame: 2.5 to 60 ms, as long as Opus allows."""
        size = _checked(
            self._encode(self._state.used(), pcm, len(pcm) // 2, self._out, _LONGEST_PACKET_BYTES)
        )
        return ctypes.string_at(self._out, size)

    def expect_loss(self, percent: int) -> None:
        """So much is lost on the way: packets hold a coarse copy of the one before them while that is worth its bits."""
        self._set(_SET_PACKET_LOSS_PERC, percent)
        self._set(_SET_INBAND_FEC, int(percent > 0))
        self._choose_model(loss=percent > 0)

    def close(self) -> None:
        self._state.close()

    def _choose_model(self, *, loss: bool) -> None:
        """libopus goes by what it is told to expect: for music it takes the transform, for a voice the speech model."""
        if self._light:
            self._set(_SET_SIGNAL, _SIGNAL_VOICE if loss else _SIGNAL_MUSIC)

    def _set(self, key: int, value: int) -> None:
        _checked(_library().opus_encoder_ctl(self._state.used(), key, ctypes.c_int32(value)))


class Decoder:
    """Gives `rate`, mono, whatever the packets were made from."""

    def __init__(self, rate: int) -> None:
        self._state = _State("decoder", rate, 1)
        self._most = round(rate * LONGEST_PACKET_S)
        self._out = ctypes.create_string_buffer(2 * self._most)
        self._decode = _library().opus_decode

    def decode(self, packet: bytes) -> bytes:
        return self._run(packet, self._most, 0)

    def conceal(self, samples: int) -> bytes:
        """What may have been in a lost packet, from what came before it. A multiple of 2.5 ms."""
        return self._run(None, samples, 0)

    def recover(self, following: bytes, samples: int) -> bytes:
        """What was lost right before `following`: from the copy in it, if there is one; else as `conceal`."""
        return self._run(following, samples, 1)

    def forget(self) -> None:
        """Another stream begins."""
        _checked(_library().opus_decoder_ctl(self._state.used(), _RESET_STATE))

    def close(self) -> None:
        self._state.close()

    def _run(self, packet: bytes | None, samples: int, recover: int) -> bytes:
        size = 0 if packet is None else len(packet)
        if samples > self._most or packet == b"":
            raise OpusError("invalid argument")
        count = _checked(
            self._decode(self._state.used(), packet, size, self._out, samples, recover)
        )
        return ctypes.string_at(self._out, 2 * count)


BIT_RATE = 32_000
COMPLEXITY = 5
CROWDED_COMPLEXITY = 2
"""Two thirds of the cost, 0.2 dB worse."""

CROWDED = 16
"""Calls of a process from which on a further one is encoded so."""

SETTLED_FRAMES = 25
"""Half a second: the last sound has left the encoder's filters."""

_SILENCE = bytes(2 * FRAME_SAMPLES)


class FrameEncoder(Protocol):
    """One stream's encoder."""

    def encode(self, pcm: bytes) -> bytes:
        """The packet of one frame: FRAME_SAMPLES, s16le."""
        ...

    def expect_loss(self, percent: int) -> None:
        """So much of what is sent is lost on the way: let packets repair the ones before them, if that is possible."""
        ...

    def close(self) -> None:
        """Free it. Idempotent."""
        ...


def new_encoder(calls: int = 0) -> FrameEncoder:
    """By ctypes where libopus is found: cheaper, and no threads of its own. `calls`: how many the process carries already."""
    if missing() is None:
        complexity = COMPLEXITY if calls < CROWDED else CROWDED_COMPLEXITY
        return SilenceOnce(Encoder(OUTPUT_RATE, BIT_RATE, complexity, light=True))
    return SilenceOnce(PyAvEncoder())


class SilenceOnce:
    """A `FrameEncoder` that encodes a stretch of silence only until nothing changes any more.

    A packet of settled silence leaves the decoder as it is, so that speech after it is decoded as if every frame had been encoded.
    """

    def __init__(self, encoder: FrameEncoder) -> None:
        self._encoder = encoder
        self._silent = 0
        self._packet = b""

    def encode(self, pcm: bytes) -> bytes:
        if pcm != _SILENCE:
            self._silent = 0
            return self._encoder.encode(pcm)
        if self._silent < SETTLED_FRAMES:
            self._silent += 1
            self._packet = self._encoder.encode(pcm)
        return self._packet

    def expect_loss(self, percent: int) -> None:
        self._encoder.expect_loss(percent)

    def close(self) -> None:
        self._encoder.close()


class PyAvEncoder:
    """A `FrameEncoder` on libopus, as PyAV brings it: it holds two threads until it is freed."""

    def __init__(self) -> None:
        codec = av.CodecContext.create("libopus", "w")
        assert isinstance(codec, av.AudioCodecContext)
        codec.sample_rate = OUTPUT_RATE
        codec.layout = "mono"
        codec.format = "s16"
        codec.bit_rate = BIT_RATE
        codec.options = {
            "application": "voip",
            "frame_duration": "20",
            "compression_level": str(COMPLEXITY),
        }
        self._codec: av.AudioCodecContext | None = codec

    def encode(self, pcm: bytes) -> bytes:
        assert self._codec is not None, "closed already"
        frame = av.AudioFrame(format="s16", layout="mono", samples=FRAME_SAMPLES)
        frame.sample_rate = OUTPUT_RATE
        frame.planes[0].update(pcm)
        return b"".join(bytes(packet) for packet in self._codec.encode(frame))

    def expect_loss(self, percent: int) -> None:
        """Its options are fixed once it is open."""

    def close(self) -> None:
        self._codec = None
