"""session.update: deep merge, all or nothing, faults by full path."""

from __future__ import annotations

import pytest

from session_server.protocol.extensions import ExtensionsPayload
from session_server.protocol.session_config import (
    TRANSCRIPTION,
    SemanticVad,
    ServerVad,
    SessionConfig,
    to_wire,
)
from session_server.protocol.session_update import apply_update, initial_config
from session_server.types.audio import PlaybackLimits

pytestmark = pytest.mark.unit


def heard(**fields) -> dict:
    return {"audio": {"input": fields}}


def vad(**fields) -> dict:
    return heard(turn_detection=fields)


def shown(config: SessionConfig) -> dict:
    return to_wire(config, session_id="s", model="m", expires_at=None)


class TestType:
    def test_is_required(self, config, rules, fault_of):
        fault = fault_of(apply_update, config, {"instructions": "x"}, rules, event_id="e13")
        assert (fault.code, fault.param, fault.event_id) == (
            "missing_required_parameter",
            "session.type",
            "e13",
        )
        assert fault.message == "Missing required parameter: 'session.type'."
        assert fault_of(apply_update, config, {"type": None}, rules).param == "session.type"

    @pytest.mark.parametrize("kind", ["transcription", "other"])
    def test_cannot_change(self, kind, config, rules, fault_of):
        fault = fault_of(apply_update, config, {"type": kind}, rules)
        assert (fault.code, fault.param) == ("invalid_value", "session.type")

    def test_a_flat_beta_update_is_told_what_is_wrong(self, config, rules, fault_of):
        fault = fault_of(apply_update, config, {"modalities": ["text"], "voice": "alloy"}, rules)
        assert fault.param == "session.type"
        assert "beta protocol" in fault.message
        assert fault.message.startswith("Missing required parameter: 'session.type'.")

    @pytest.mark.parametrize(
        ("key", "hint"),
        [
            ("voice", "session.audio.output.voice"),
            ("modalities", "session.output_modalities"),
            ("temperature", None),
        ],
    )
    def test_a_beta_field_is_unknown_and_its_new_place_is_named(
        self, key, hint, config, update, fault_of
    ):
        fault = fault_of(update, config, {key: "x"})
        assert (fault.code, fault.param) == ("unknown_parameter", f"session.{key}")
        assert hint is None or hint in fault.message


class TestMerge:
    def test_an_empty_update_changes_nothing(self, config, update):
        assert update(config, {}) == config

    def test_absent_keeps_and_null_clears(self, config, update):
        one = update(config, {"instructions": "x", "max_output_tokens": 9, "tracing": "auto"})
        two = update(one, {"instructions": None, "tracing": None})
        assert (two.instructions, two.max_output_tokens, two.tracing) == ("Be kind.", 9, None)

    def test_null_clears_whole_branches(self, config, update):
        one = update(config, {"audio": {"output": {"speed": 1.5}, "input": {"transcription": {}}}})
        assert update(one, {"audio": {"output": None}}).output == config.output
        assert update(one, {"audio": {"output": None}}).input == one.input
        assert update(one, {"audio": None}) == config

    def test_partial_turn_detection_keeps_type_and_all_else(self, config, update):
        one = update(config, vad(type="server_vad", silence_duration_ms=700))
        two = update(one, vad(threshold=0.8))
        assert two.input.turn_detection == ServerVad(threshold=0.8, silence_duration_ms=700)

    def test_partial_turn_detection_from_null_starts_from_the_defaults(self, config, update):
        off = update(config, heard(turn_detection=None))
        assert off.input.turn_detection is None
        assert update(off, {"instructions": "x"}).input.turn_detection is None
        again = update(off, vad(silence_duration_ms=700))
        assert again.input.turn_detection == ServerVad(silence_duration_ms=700)

    def test_another_type_starts_from_its_own_defaults(self, config, update):
        one = update(config, vad(create_response=False, silence_duration_ms=700))
        two = update(one, vad(type="semantic_vad", eagerness="high"))
        assert two.input.turn_detection == SemanticVad("high")
        three = update(two, vad(interrupt_response=False))
        assert three.input.turn_detection == SemanticVad("high", interrupt_response=False)
        assert update(three, vad(type="server_vad")).input.turn_detection == ServerVad()

    def test_null_inside_turn_detection_clears_that_field(self, config, update):
        one = update(config, vad(threshold=0.9, idle_timeout_ms=6000))
        two = update(one, vad(threshold=None, idle_timeout_ms=None))
        assert two.input.turn_detection == ServerVad()

    def test_nulls_of_fields_of_the_other_type_do_no_harm(self, config, update):
        one = update(config, vad(type="semantic_vad", threshold=None, idle_timeout_ms=None))
        assert one.input.turn_detection == SemanticVad()

    def test_lists_replace(self, config, update):
        one = update(config, {"tools": [{"name": "a"}, {"name": "b"}]})
        assert [tool.name for tool in update(one, {"tools": [{"name": "c"}]}).tools] == ["c"]
        assert update(one, {"tools": []}).tools == ()
        assert update(one, {"instructions": "x"}).tools == one.tools

    def test_what_the_connection_fixes_is_ignored(self, config, update):
        fixed = {"model": "other", "id": 7, "object": "x", "expires_at": "y"}
        assert update(config, fixed) == config

    def test_transcription_merges_key_by_key(self, config, update):
        one = update(config, heard(transcription={"model": "whisper-1", "language": "en"}))
        two = update(
            one, heard(transcription={"language": None, "keywords": ["a"], "delay": "low"})
        )
        assert shown(two)["audio"]["input"]["transcription"] == {
            "model": "whisper-1",
            "language": None,
            "prompt": None,
            "keywords": ["a"],
            "delay": "low",
        }

    def test_noise_reduction(self, config, update):
        one = update(config, heard(noise_reduction={"type": "far_field", "strength": 0.5}))
        two = update(one, heard(noise_reduction={"strength": None}))
        assert shown(two)["audio"]["input"]["noise_reduction"] == {"type": "far_field"}

    def test_a_format_by_type_alone(self, config, update):
        one = update(config, heard(format={"type": "audio/pcmu"}))
        assert shown(one)["audio"]["input"]["format"] == {"type": "audio/pcmu"}
        assert update(one, heard(format={"rate": 8000})) == one
        assert update(one, heard(format=None)).input == config.input

    def test_stored_objects_merge_key_by_key(self, config, update):
        one = update(
            config,
            {
                "tracing": {"group_id": "g", "metadata": {"a": 1}},
                "prompt": {"id": "p", "version": "1"},
            },
        )
        two = update(one, {"tracing": {"workflow_name": "w"}, "prompt": {"version": None}})
        assert shown(two)["tracing"] == {
            "group_id": "g",
            "metadata": {"a": 1},
            "workflow_name": "w",
        }
        assert shown(two)["prompt"] == {"id": "p"}
        assert shown(update(two, {"tracing": "auto"}))["tracing"] == "auto"

    def test_truncation(self, config, update):
        ratio = {"type": "retention_ratio", "retention_ratio": 0.8}
        one = update(config, {"truncation": ratio})
        assert shown(one)["truncation"] == ratio
        two = update(one, {"truncation": {"token_limits": {"post_instructions": 99}}})
        assert shown(two)["truncation"] == {**ratio, "token_limits": {"post_instructions": 99}}
        assert shown(update(two, {"truncation": {"token_limits": None}}))["truncation"] == ratio
        assert shown(update(two, {"truncation": "disabled"}))["truncation"] == "disabled"
        assert update(two, {"truncation": None}) == config

    def test_reasoning(self, config, update):
        one = update(config, {"reasoning": {"effort": "low"}})
        assert shown(one)["reasoning"] == {"effort": "low"}
        assert update(one, {"reasoning": {}}) == one
        assert update(one, {"reasoning": {"effort": None}}) == config

    def test_a_transcription_session_takes_input_settings_only(self, rules, update, fault_of):
        config = initial_config(rules, kind=TRANSCRIPTION)
        one = update(config, heard(transcription={"language": "en"}))
        assert one.input.transcription.language == "en"
        assert fault_of(update, config, {"tools": []}).code == "unknown_parameter"
        fault = fault_of(update, config, {"audio": {"output": {"voice": "marin"}}})
        assert (fault.code, fault.param) == ("unknown_parameter", "session.audio.output")


class TestFaults:
    @pytest.mark.parametrize(
        ("session", "code", "param"),
        [
            ({"colour": "red"}, "unknown_parameter", "session.colour"),
            ({"audio": {"mixer": 1}}, "unknown_parameter", "session.audio.mixer"),
            (heard(gain=1), "unknown_parameter", "session.audio.input.gain"),
            (vad(speed=1), "unknown_parameter", "session.audio.input.turn_detection.speed"),
            (
                vad(eagerness="low"),
                "unknown_parameter",
                "session.audio.input.turn_detection.eagerness",
            ),
            (vad(type="none"), "invalid_value", "session.audio.input.turn_detection.type"),
            (vad(threshold=1.5), "invalid_value", "session.audio.input.turn_detection.threshold"),
            (vad(threshold="x"), "invalid_type", "session.audio.input.turn_detection.threshold"),
            (
                vad(silence_duration_ms=-1),
                "invalid_value",
                "session.audio.input.turn_detection.silence_duration_ms",
            ),
            (
                vad(idle_timeout_ms=100),
                "invalid_value",
                "session.audio.input.turn_detection.idle_timeout_ms",
            ),
            (
                vad(create_response="yes"),
                "invalid_type",
                "session.audio.input.turn_detection.create_response",
            ),
            (
                vad(type="semantic_vad", eagerness="x"),
                "invalid_value",
                "session.audio.input.turn_detection.eagerness",
            ),
            (heard(turn_detection=False), "invalid_type", "session.audio.input.turn_detection"),
            (
                heard(format={"type": "audio/pcm", "rate": 16000}),
                "invalid_value",
                "session.audio.input.format.rate",
            ),
            (
                heard(format={"type": "audio/opus"}),
                "invalid_value",
                "session.audio.input.format.type",
            ),
            (heard(format="pcm16"), "invalid_type", "session.audio.input.format"),
            (
                heard(noise_reduction={"type": "x"}),
                "invalid_value",
                "session.audio.input.noise_reduction.type",
            ),
            (
                heard(transcription={"keywords": ["a", 1]}),
                "invalid_type",
                "session.audio.input.transcription.keywords[1]",
            ),
            ({"audio": {"output": {"speed": 9}}}, "invalid_value", "session.audio.output.speed"),
            (
                {"audio": {"output": {"voice": "nobody"}}},
                "invalid_value",
                "session.audio.output.voice",
            ),
            (
                {"audio": {"output": {"voice": {"id": "nobody"}}}},
                "invalid_value",
                "session.audio.output.voice",
            ),
            (
                {"audio": {"output": {"voice": {}}}},
                "missing_required_parameter",
                "session.audio.output.voice.id",
            ),
            (
                {"output_modalities": ["audio", "text"]},
                "invalid_value",
                "session.output_modalities",
            ),
            ({"output_modalities": []}, "invalid_value", "session.output_modalities"),
            ({"output_modalities": ["video"]}, "invalid_value", "session.output_modalities[0]"),
            ({"output_modalities": "text"}, "invalid_type", "session.output_modalities"),
            ({"max_output_tokens": 0}, "invalid_value", "session.max_output_tokens"),
            ({"max_output_tokens": 4097}, "invalid_value", "session.max_output_tokens"),
            ({"max_output_tokens": "many"}, "invalid_value", "session.max_output_tokens"),
            ({"max_output_tokens": True}, "invalid_type", "session.max_output_tokens"),
            ({"instructions": 5}, "invalid_type", "session.instructions"),
            ({"instructions": "é" * 150_000}, "string_above_max_length", "session.instructions"),
            ({"tools": {}}, "invalid_type", "session.tools"),
            ({"tool_choice": "sometimes"}, "invalid_value", "session.tool_choice"),
            ({"parallel_tool_calls": 1}, "invalid_type", "session.parallel_tool_calls"),
            ({"reasoning": {"effort": "huge"}}, "invalid_value", "session.reasoning.effort"),
            ({"tracing": "on"}, "invalid_value", "session.tracing"),
            ({"tracing": 1}, "invalid_type", "session.tracing"),
            ({"tracing": {"metadata": 1}}, "invalid_type", "session.tracing.metadata"),
            ({"prompt": {"version": "1"}}, "missing_required_parameter", "session.prompt.id"),
            ({"prompt": {"id": None}}, "missing_required_parameter", "session.prompt.id"),
            ({"truncation": "never"}, "invalid_value", "session.truncation"),
            ({"truncation": 1}, "invalid_type", "session.truncation"),
            ({"truncation": {}}, "missing_required_parameter", "session.truncation.type"),
            (
                {"truncation": {"type": "retention_ratio"}},
                "missing_required_parameter",
                "session.truncation.retention_ratio",
            ),
            (
                {"truncation": {"type": "retention_ratio", "retention_ratio": 2}},
                "invalid_value",
                "session.truncation.retention_ratio",
            ),
            ({"include": ["everything"]}, "invalid_value", "session.include[0]"),
            ({"audio": []}, "invalid_type", "session.audio"),
            ({"extensions": {"video": {}}}, "invalid_value", "session.extensions.video"),
            ({"extensions": {"resume": {}}}, "invalid_value", "session.extensions.resume"),
            ({"extensions": {"smell": {}}}, "unknown_parameter", "session.extensions.smell"),
        ],
    )
    def test_are_named_by_their_full_path(self, session, code, param, config, update, fault_of):
        fault = fault_of(update, config, session, event_id="e")
        assert (fault.code, fault.param, fault.event_id) == (code, param, "e")

    def test_a_rejected_update_changes_nothing(self, config, update, fault_of):
        before = shown(config)
        fault_of(update, config, {"instructions": "new", "audio": {"output": {"speed": 9}}})
        assert shown(config) == before


class TestVoice:
    def test_own_names_aliases_and_ids_are_accepted(self, config, update):
        for voice in ("heart", "alloy", {"id": "bella"}, {"id": "cedar"}):
            assert update(config, {"audio": {"output": {"voice": voice}}})

    def test_is_shown_as_the_client_spelt_it(self, config, update):
        one = update(config, {"audio": {"output": {"voice": {"id": "shimmer"}}}})
        assert shown(one)["audio"]["output"]["voice"] == "shimmer"

    def test_is_fixed_once_audio_was_sent(self, config, update, fault_of):
        fault = fault_of(
            update, config, {"audio": {"output": {"voice": "bella"}}}, voice_locked=True
        )
        assert (fault.code, fault.param) == ("cannot_update_voice", "session.audio.output.voice")

    def test_the_same_voice_is_fine_by_any_name(self, config, rules, update):
        same = rules.voices.resolve(config.output.voice)
        for voice in (config.output.voice, same):
            assert update(config, {"audio": {"output": {"voice": voice}}}, voice_locked=True)

    def test_other_fields_are_not_locked(self, config, update):
        assert update(config, {"instructions": "x"}, voice_locked=True).instructions == "x"

    def test_clearing_is_a_change_like_any_other(self, config, update, fault_of):
        one = update(config, {"audio": {"output": {"voice": "bella"}}})
        fault = fault_of(update, one, {"audio": {"output": {"voice": None}}}, voice_locked=True)
        assert fault.code == "cannot_update_voice"


class TestExtensions:
    def test_are_absent_without_opting_in(self, config):
        assert "extensions" not in shown(config)

    def test_opting_in_and_out(self, config, update):
        one = update(config, {"extensions": {"playback": {"ack_interval_ms": 100}}})
        assert shown(one)["extensions"] == {
            "playback": {"ack_interval_ms": 100, "max_lead_ms": 1000, "settle_ms": 500}
        }
        two = update(one, {"extensions": {"playback": {"settle_ms": 0, "max_lead_ms": None}}})
        assert two.extensions == ExtensionsPayload(PlaybackLimits(100, 1000, 0))
        assert update(two, {"extensions": {"playback": None}}) == config
        assert update(two, {"extensions": None}) == config

    def test_chosen_at_connect_they_are_there_from_the_start(self, rules):
        config = initial_config(rules, extensions=ExtensionsPayload(PlaybackLimits()))
        assert "playback" in shown(config)["extensions"]
