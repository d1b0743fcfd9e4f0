"""`session.audio`: merging what a session hears and how it speaks. Rules as in `session_update`."""

from __future__ import annotations

from session_server.protocol import error_codes
from session_server.protocol.session_config import (
    AudioInputPayload,
    AudioOutputPayload,
    NoiseReduction,
    SemanticVad,
    ServerVad,
    Transcription,
    TurnDetection,
    Voices,
)
from session_server.protocol.values import (
    Fields,
    Json,
    array_of,
    boolean,
    identifier,
    integer,
    integer_between,
    number_between,
    option,
    short_text,
    text,
)
from session_server.types.audio import AudioFormat

FORMATS = tuple(form.value for form in AudioFormat)
_HINTS = 100
"""Entries of a list of languages or keywords."""


def merge_input(now: AudioInputPayload, value: Json, path: str) -> AudioInputPayload:
    known = ("format", "transcription", "noise_reduction", "turn_detection")
    fields = Fields(value, path, known)

    def form(value: Json, path: str) -> AudioFormat:
        return audio_format(now.format, value, path)

    def transcription(value: Json, path: str) -> Transcription:
        return _merge_transcription(now.transcription or Transcription(), value, path)

    def noise_reduction(value: Json, path: str) -> NoiseReduction:
        return _merge_noise_reduction(now.noise_reduction, value, path)

    def turn_detection(value: Json, path: str) -> TurnDetection:
        return _merge_turn_detection(now.turn_detection, value, path)

    return AudioInputPayload(
        fields.merge("format", now.format, AudioFormat.PCM, form),
        fields.merge("transcription", now.transcription, None, transcription),
        fields.merge("noise_reduction", now.noise_reduction, None, noise_reduction),
        fields.merge("turn_detection", now.turn_detection, None, turn_detection),
    )


def merge_output(
    now: AudioOutputPayload, default: AudioOutputPayload, value: Json, path: str, voices: Voices
) -> AudioOutputPayload:
    fields = Fields(value, path, ("format", "voice", "speed"))

    def form(value: Json, path: str) -> AudioFormat:
        return audio_format(now.format, value, path)

    def voice(value: Json, path: str) -> str:
        return voice_name(voices, value, path)

    return AudioOutputPayload(
        fields.merge("format", now.format, AudioFormat.PCM, form),
        fields.merge("voice", now.voice, default.voice, voice),
        fields.merge("speed", now.speed, default.speed, number_between(0.25, 1.5)),
    )


def audio_format(now: AudioFormat, value: Json, path: str) -> AudioFormat:
    """`{type, rate}`; each type has one rate."""
    fields = Fields(value, path, ("type", "rate"))
    form = AudioFormat(fields.merge("type", now.value, AudioFormat.PCM.value, option(FORMATS)))
    rate = fields.optional("rate", integer)
    if rate is not None and rate != form.rate:
        message = f"Expected {form.rate}, the only sample rate of {form.value}."
        raise error_codes.invalid_value(fields.path("rate"), message)
    return form


def voice_name(voices: Voices, value: Json, path: str) -> str:
    """A voice by its name, or as `{"id": name}`."""
    if isinstance(value, dict):
        name = Fields(value, path, ("id",)).required("id", text)
    else:
        name = text(value, path)
    if voices.resolve(name) is None:
        raise error_codes.unknown_voice(path, name, voices.names())
    return name


def _merge_transcription(now: Transcription, value: Json, path: str) -> Transcription:
    fields = Fields(value, path, Transcription.__struct_fields__)
    hints = array_of(short_text(200), _HINTS)
    delays = option(("minimal", "low", "medium", "high", "xhigh"))
    return Transcription(
        fields.merge("model", now.model, None, identifier),
        fields.merge("language", now.language, None, identifier),
        fields.merge("prompt", now.prompt, None, text),
        fields.merge("languages", now.languages, None, hints),
        fields.merge("keywords", now.keywords, None, hints),
        fields.merge("delay", now.delay, None, delays),
    )


def _merge_noise_reduction(now: NoiseReduction | None, value: Json, path: str) -> NoiseReduction:
    now = now or NoiseReduction("near_field")
    fields = Fields(value, path, ("type", "strength"))
    return NoiseReduction(
        fields.merge("type", now.type, "near_field", option(("near_field", "far_field"))),
        fields.merge("strength", now.strength, None, number_between(0.0, 1.0)),
    )


def _merge_turn_detection(now: TurnDetection, value: Json, path: str) -> TurnDetection:
    fields = Fields(value, path)
    kind = "semantic_vad" if isinstance(now, SemanticVad) else "server_vad"
    kind = fields.merge("type", kind, "server_vad", option(("server_vad", "semantic_vad")))
    if kind == "semantic_vad":
        return _merge_semantic(now if isinstance(now, SemanticVad) else SemanticVad(), value, path)
    return _merge_server(now if isinstance(now, ServerVad) else ServerVad(), value, path)


def _merge_server(now: ServerVad, value: Json, path: str) -> ServerVad:
    fields = Fields(value, path, ("type", *ServerVad.__struct_fields__))
    merge, default = fields.merge, ServerVad()
    ms = integer_between(0, 10_000)
    return ServerVad(
        merge("threshold", now.threshold, default.threshold, number_between(0.0, 1.0)),
        merge("prefix_padding_ms", now.prefix_padding_ms, default.prefix_padding_ms, ms),
        merge("silence_duration_ms", now.silence_duration_ms, default.silence_duration_ms, ms),
        merge("idle_timeout_ms", now.idle_timeout_ms, None, integer_between(5_000, 30_000)),
        merge("create_response", now.create_response, True, boolean),
        merge("interrupt_response", now.interrupt_response, True, boolean),
    )


def _merge_semantic(now: SemanticVad, value: Json, path: str) -> SemanticVad:
    fields = Fields(value, path, ("type", *SemanticVad.__struct_fields__))
    merge = fields.merge
    return SemanticVad(
        merge("eagerness", now.eagerness, "auto", option(("low", "medium", "high", "auto"))),
        merge("create_response", now.create_response, True, boolean),
        merge("interrupt_response", now.interrupt_response, True, boolean),
    )
