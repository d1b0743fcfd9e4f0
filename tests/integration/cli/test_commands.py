"""The commands as a user runs them: exit codes, one-line errors, start and end of `serve`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

pytestmark = pytest.mark.integration

COMMAND = [sys.executable, "-m", "session_server.cli"]
HANG_S = 120
"""A process that takes this long has hung; it is no bar, and far below the 300 s that a drain would wait."""
ROOT = Path(__file__).resolve().parents[3]


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SESSION_SERVER")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", **more}


def run(*arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment(**env),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def one_line(done: subprocess.CompletedProcess[str], code: int, said: str) -> None:
    lines = done.stderr.splitlines()
    assert done.returncode == code, done.stderr
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("session-server: ")
    assert said in lines[0]


def test_looking_without_the_models_says_how_to_get_them(tmp_path: Path):
    done = run("look", "photo.jpg", SESSION_SERVER_MODELS=str(tmp_path))
    one_line(done, 2, "run `session-server models fetch --vision`")


def test_an_unknown_key_is_one_line_and_exit_code_2(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("server: {prot: 1}")
    one_line(
        run("serve", "--config", str(file)), 2, "server.prot: unknown key, did you mean 'port'?"
    )


def test_a_wrong_variable_is_one_line_and_exit_code_2():
    done = run("check", SESSION_SERVER__CORE__DUCK_MS="5000")
    one_line(done, 2, "core.duck_ms: 5000 is more than core.commit_ms = 800")


def test_missing_models_are_one_line_with_the_cure(tmp_path: Path):
    done = run("serve", "--models", str(tmp_path))
    one_line(done, 2, "session-server models fetch")
    assert str(tmp_path) in done.stderr


def test_serve_with_an_engine_that_lacks_its_packages_or_weights_points_to_check(tmp_path: Path):
    flags = ("--config", "moshi.yaml", "--models", str(tmp_path), "--port", "0")
    done = run("serve", *flags)
    one_line(done, 2, "; `session-server check` with these settings says what helps")
    assert "see docs/duplex.md" in run("check", *flags).stdout


def test_a_port_in_use_is_one_line_and_exit_code_2():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = run("serve", "--config", "sim.yaml", "--port", str(port))
        one_line(done, 2, f"server.port: port {port} of 127.0.0.1 is in use")


def test_demo_sees_a_port_in_use_before_it_fetches_anything(tmp_path: Path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = run("demo", "--models", str(tmp_path), "--port", str(port), cwd=tmp_path)
        one_line(done, 2, f"server.port: port {port} of 127.0.0.1 is in use")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", [".", "nowhere/out.wav"])
def test_offline_sees_that_it_cannot_write_before_it_looks_for_models(tmp_path: Path, target: str):
    done = run("offline", "a.wav", target, "--models", str(tmp_path), cwd=tmp_path)
    one_line(done, 2, f"{target}: cannot be written")


def test_a_variable_with_one_underscore_is_told(tmp_path: Path):
    done = run("models", "path", SESSION_SERVER_PORT="1", SESSION_SERVER_MODELS=str(tmp_path))
    assert done.returncode == 0
    assert "did you mean SESSION_SERVER__SERVER__PORT?" in done.stderr


def test_a_missing_input_file_is_named(tmp_path: Path):
    done = run("offline", "nowhere.wav", "out.wav", "--config", "sim.yaml", cwd=tmp_path)
    one_line(done, 2, "nowhere.wav: no such file")


def test_talk_to_nobody_is_one_line_and_exit_code_1(tmp_path: Path):
    import wave

    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        file.writeframes(b"\1\0" * 24_000)
    done = run("talk", "--url", "ws://127.0.0.1:9/v1/realtime", "--wav", str(tmp_path / "a.wav"))
    one_line(done, 1, "cannot connect to ws://127.0.0.1:9/v1/realtime")


def test_models_path_and_list(tmp_path: Path):
    assert run("models", "path", "--models", str(tmp_path)).stdout.strip() == str(tmp_path)
    as_json = run("models", "path", "--json", "--models", str(tmp_path))
    assert json.loads(as_json.stdout) == {"folder": str(tmp_path)}
    table = run("models", "list", "--models", str(tmp_path)).stdout
    assert "encoder_model.ort" in table
    assert len(table.splitlines()) == 2 + len(
        json.loads(run("models", "list", "--json", "--models", str(tmp_path)).stdout)["models"]
    )
    listed = run("models", "list", "--json", SESSION_SERVER_MODELS=str(tmp_path))
    assert listed.returncode == 1
    body = json.loads(listed.stdout)
    assert body["ok"] is False
    assert body["folder"] == str(tmp_path)
    assert {"name", "size", "licence", "present"} <= set(body["models"][0])


@contextmanager
def served(*arguments: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A `serve` process with simulated engines, once it says that it is ready."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--config", "sim.yaml", "--port", "0", *arguments],
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready"), line + (process.stderr.read() if process.stderr else "")
        yield process, line.split()[1]
    finally:
        process.kill()
        process.communicate(timeout=HANG_S)


def status(url: str, path: str) -> int:
    base = url.replace("ws://", "http://").removesuffix("/v1/realtime")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(base + path, timeout=HANG_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def read_to_the_end(client: ClientConnection) -> list[str | int | None]:
    """Types of all events that still come, then the close code."""
    seen: list[str | int | None] = []
    try:
        while True:
            seen.append(json.loads(client.recv(timeout=HANG_S))["type"])
    except ConnectionClosed as closed:
        return [*seen, closed.rcvd.code if closed.rcvd is not None else None]


def test_sigterm_closes_idle_sessions_with_1001_and_exits_0():
    with served() as (process, url), connect(url) as client:
        assert json.loads(client.recv(timeout=HANG_S))["type"] == "session.created"
        assert status(url, "/readyz") == 200
        process.send_signal(signal.SIGTERM)
        assert read_to_the_end(client)[-1] == 1001
        assert process.wait(timeout=HANG_S) == 0


def test_while_an_answer_runs_readiness_is_off_and_nobody_new_is_let_in():
    with served(SESSION_SERVER__DRAIN__ANSWER_S="300") as (process, url), connect(url) as client:
        client.recv(timeout=HANG_S)
        ask_for_an_answer(client, tokens=16)
        process.send_signal(signal.SIGTERM)
        assert status(url, "/readyz") == 503
        with pytest.raises(InvalidStatus) as refused:
            connect(url)
        assert refused.value.response.status_code == 503
        assert "Retry-After" in refused.value.response.headers
        *types, code = read_to_the_end(client)
        assert "response.done" in types
        assert code == 1001
        assert process.wait(timeout=HANG_S) == 0


def test_a_second_signal_ends_at_once():
    with served(SESSION_SERVER__DRAIN__ANSWER_S="300") as (process, url), connect(url) as client:
        client.recv(timeout=HANG_S)
        ask_for_an_answer(client)
        process.send_signal(signal.SIGTERM)
        assert status(url, "/readyz") == 503
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=HANG_S) == 0


def ask_for_an_answer(client: ClientConnection, tokens: int = 4096) -> None:
    """Ask by text, and wait until audio of the answer comes."""
    item = {"type": "message", "role": "user"}
    item["content"] = [{"type": "input_text", "text": "Tell me a long story about a cat."}]
    client.send(json.dumps({"type": "conversation.item.create", "item": item}))
    client.send(json.dumps({"type": "response.create", "response": {"max_output_tokens": tokens}}))
    while json.loads(client.recv(timeout=HANG_S))["type"] != "response.output_audio.delta":
        pass


def test_a_key_is_needed_when_keys_are_configured_and_never_printed():
    with served(SESSION_SERVER__AUTH__KEYS="[sk-very-secret]") as (process, url):
        with pytest.raises(InvalidStatus) as refused:
            connect(url)
        assert refused.value.response.status_code == 401
        with connect(url, additional_headers={"Authorization": "Bearer sk-very-secret"}) as client:
            client.recv(timeout=HANG_S)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=HANG_S)
        assert "sk-very-secret" not in out + err
        assert process.returncode == 0
        lines = [line for line in err.splitlines() if " INFO " in line]
        assert [line.rpartition("] ")[2].split(" after")[0] for line in lines] == [
            "the session begins",
            "the session is over",
            "told to stop: nobody else is let in, running answers may end",
            "stopped",
        ]
        assert "[sess_" in lines[0]
        assert lines[0].split("[")[1].split("]")[0] in lines[1]
