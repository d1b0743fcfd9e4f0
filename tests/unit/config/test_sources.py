"""Configuration: every mistake is one line that names the key or file; every value knows its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_server.config import load
from session_server.scheduler.params import PolicyName
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def complaint(file: Path | None = None, env: dict[str, str] | None = None, **flags: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(file, env, {key.replace("__", "."): value for key, value in flags.items()})
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("serverr: {port: 1}", "serverr: unknown key, did you mean 'server'?"),
        ("server: {prot: 1}", "server.prot: unknown key, did you mean 'port'?"),
        ("server: 3", "server: must be a section of named keys, not 3"),
        ("server: {port: abc}", "server.port: must be a whole number, not 'abc'"),
        ("server: {port: 80.5}", "server.port: must be a whole number, not 80.5"),
        ("server: {close_wait_s: 1e1}", "not '1e1', which YAML takes for text: write 10 "),
        ("server: {port: 8e3}", "not '8e3', which YAML takes for text: write 8000 "),
        (
            f"server: {{close_wait_s: {10**400}}}",
            "server.close_wait_s: the number is too large (file",
        ),
        ("server: {port: true}", "server.port: must be a whole number, not True"),
        ("server: {port: 70000}", "server.port: 70000 is not within 0 and 65535"),
        ("server: {host: ''}", "server.host: must not be empty"),
        ("server: {max_message_bytes: 1000}", "server.max_message_bytes: 1000 is not within"),
        ("server: {outbox_wait_s: -1}", "server.outbox_wait_s: -1.0 is not within"),
        ("server: {heartbeat_s: .nan}", "server.heartbeat_s: nan is not within"),
        ("observability: {log_level: loud}", "observability.log_level: must be one of debug,"),
        ("observability: {metrics: 1}", "observability.metrics: must be true or false, not 1"),
        ("observability: {record_file: ''}", "observability.record_file: must not be empty; null"),
        ("observability: {record_mb: 0}", "observability.record_mb: 0 is not within 1 and"),
        ("webrtc: {ice_servers: ['http://a']}", "webrtc.ice_servers: 'http://a' is none: each is"),
        ("webrtc: {ice_servers: ['stun:']}", "webrtc.ice_servers: 'stun:' is none"),
        ("webrtc: {ice_servers: ['stun://a:1']}", "webrtc.ice_servers: 'stun://a:1' is none"),
        (
            "webrtc: {ice_servers: ['stun:a:0']}",
            "webrtc.ice_servers: 'stun:a:0': there is no port 0",
        ),
        ("webrtc: {ice_servers: ['stun:a:99999']}", "there is no port 99999"),
        ("webrtc: {ice_servers: ['stun:a?transport=udp']}", "stun:a?transport=udp' is none"),
        ("webrtc: {ice_servers: ['turn:a?transport=quic']}", "turn:a?transport=quic' is none"),
        ("core: {duck_ms: 900}", "core.duck_ms: 900 is more than core.commit_ms = 800"),
        ("core: {delta_ms: 500}", "core.delta_ms: 500 is not within 20 and 100"),
        ("core: {commit_ms: -5}", "core.commit_ms: -5 is not within"),
        ("core: {looking_ms: 0}", "core.looking_ms: 0 is not within 100 and 60000"),
        ("core: {camera_fresh_ms: 3000}", "is more than core.camera_lost_ms = 2000"),
        ("core: {commentary_gap_ms: 0}", "core.commentary_gap_ms: 0 is not within"),
        ("video: {max_fps: 0.1}", "video.max_fps: 0.1 is not within 0.2 and 10"),
        ("video: {max_fps: 11}", "video.max_fps: 11.0 is not within 0.2 and 10"),
        ("video: {max_fps: .nan}", "video.max_fps: nan is not within"),
        ("video: {max_bytes: 999}", "video.max_bytes: 999 is not within"),
        ("video: {fps: 1}", "video.fps: unknown key"),
        ("webrtc: {video: some}", "webrtc.video: must be one of all, key_frames, off, not 'some'"),
        ("core: {lead_sent_ms: 3000}", "core.lead_sent_ms: 3000 is more than"),
        ("core: {backchannel_words: yes}", "core.backchannel_words: must be a list, not True"),
        ("core: {backchannel_words: [1]}", "core.backchannel_words[0]: must be text, not 1"),
        ("scheduler: {policy: best}", "scheduler.policy: must be one of fcfs, liveserve, deadline"),
        ("scheduler: {max_sessions: 0}", "scheduler.max_sessions: 0 is not within"),
        ("scheduler: {chunk_ladder_s: [0.2, 0.1]}", "scheduler: chunk_ladder_s must rise"),
        ("session: {speed: 3}", "session.speed: 3.0 is not within 0.25 and 1.5"),
        ("session: {turn_detection: none}", "session.turn_detection: must be one of server_vad,"),
        ("graph: {stages: {asr: {}}, edges: []}", "graph.stages.asr.engine: must name an engine"),
        ("graph: {stages: {ears: {engine: x}}, edges: []}", "graph.stages: unknown stage 'ears'"),
        ("graph: 1", "graph: must be a section of stages and edges"),
        ("auth: {keys: ['']}", "auth.keys: a key must not be empty"),
        ("auth: {keys: [ek_mine]}", "auth.keys: a key must not begin with ek_"),
        ("[1, 2]", "mine.yaml: must hold named sections, not list"),
        ("a: [", "mine.yaml: not valid YAML:"),
        ("a: \x01", "mine.yaml: not valid YAML:"),
    ],
)
def test_a_mistake_in_the_file_names_the_key_and_the_file(tmp_path: Path, text: str, said: str):
    heard = complaint(write(tmp_path, text))
    assert said in heard
    assert "mine.yaml" in heard


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SESSION_SERVER__SERVER__PORT", "x", "server.port: must be a whole number"),
        ("SESSION_SERVER__SERVER__PROT", "1", "server.prot: unknown key"),
        ("SESSION_SERVER__SERVER", "1", "server: must be a section"),
        ("SESSION_SERVER__", "1", "must look like"),
        ("SESSION_SERVER__SERVER__HOST", "[", "not a YAML value"),
        ("SESSION_SERVER__GRAPH__STAGES__ASR__MAX_BATCH", "0", "graph.stages.asr.max_batch"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(variable: str, value: str, said: str):
    heard = complaint(None, {variable: value})
    assert said in heard
    assert variable in heard


def test_a_secret_of_a_wrong_type_is_not_printed():
    heard = complaint(None, {"SESSION_SERVER__AUTH__KEYS": "sk-very-secret"})
    assert "auth.keys" in heard
    assert "sk-very-secret" not in heard


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    assert "nowhere.yaml: no such file" in complaint(tmp_path / "nowhere.yaml")


def test_a_folder_or_binary_file_is_named(tmp_path: Path):
    assert str(tmp_path) in complaint(tmp_path)
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "b.yaml: is not UTF-8 text" in complaint(binary)


def test_later_sources_win_and_each_value_knows_its_own(tmp_path: Path):
    file = write(tmp_path, "server: {port: 1, host: '::1'}\ncore: {speculate: false}")
    env = {"SESSION_SERVER__SERVER__PORT": "2", "HOME": "/", "SESSION_SERVER_MODELS": "/m"}
    loaded = load(file, env, {"server.port": 3, "server.host": None})
    assert (loaded.config.server.port, loaded.config.server.host) == (3, "::1")
    assert loaded.config.core.speculate is False
    said = {s.key: s.source for s in loaded.settings()}
    assert said["server.port"] == "flag for server.port"
    assert said["server.host"].startswith("file ")
    assert said["server.heartbeat_s"] == "default"
    assert said["graph.stages.asr.engine"] == "file cpu.yaml"


def test_the_environment_sets_numbers_lists_and_choices():
    env = {
        "SESSION_SERVER__SCHEDULER__POLICY": "fcfs",
        "SESSION_SERVER__AUTH__KEYS": "[sk-a, sk-b]",
        "SESSION_SERVER__SERVER__HEARTBEAT_S": "3",
        "SESSION_SERVER__SESSION__MAX_OUTPUT_TOKENS": "null",
    }
    config = load(None, env).config
    assert config.scheduler.policy is PolicyName.FCFS
    assert config.auth.keys == ("sk-a", "sk-b")
    assert config.server.heartbeat_s == 3.0
    assert config.session.max_output_tokens is None


def test_secrets_are_masked_where_settings_are_shown():
    loaded = load(None, {"SESSION_SERVER__AUTH__KEYS": "[sk-very-secret]"})
    assert "sk-very-secret" not in repr(loaded.settings())


def test_the_default_file_says_what_the_defaults_are(tmp_path: Path):
    written = load().config
    built_in = load(write(tmp_path, "{}")).config
    assert written == built_in
    assert built_in.scheduler.admission


INTERNAL = {
    "core.backchannel_words",  # long; shown in a comment
    "scheduler.max_work_per_session",
    "scheduler.transport_s",
    "scheduler.chars_per_s",
    "scheduler.audio_s_per_char_cap",
    "scheduler.audio_s_floor",
    "scheduler.silence_cap_s",
}


def test_the_default_file_shows_every_key():
    for setting in load().settings():
        if not setting.key.startswith("graph.stages.") and setting.key not in INTERNAL:
            assert setting.source == "file cpu.yaml", f"{setting.key} is not in configs/cpu.yaml"


def test_a_shipped_file_is_found_by_name_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("sim.yaml", "configs/sim.yaml"):
        assert load(Path(name)).config.graph.stages[0].engine == "sim.asr"
