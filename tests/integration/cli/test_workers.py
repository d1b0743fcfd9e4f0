"""`serve --workers 2` as a user runs it: signals, what is left behind, and mistakes in one line."""

from __future__ import annotations

import json
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.integration.cli.test_commands import (
    HANG_S,
    ask_for_an_answer,
    one_line,
    read_to_the_end,
    run,
    served,
)

pytestmark = pytest.mark.integration

TWO = ("--workers", "2")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the server makes its private folder; short, since names of sockets are. When the server is gone it is, too."""
    with tempfile.TemporaryDirectory(prefix="ss") as made:
        yield Path(made)
        assert list(Path(made).glob("session-server-*")) == []


def everything(client: ClientConnection) -> tuple[list[dict[str, Any]], int | None]:
    """All events that still come, and the close code."""
    said: list[dict[str, Any]] = []
    try:
        while True:
            said.append(json.loads(client.recv(timeout=HANG_S)))
    except ConnectionClosed as closed:
        return said, closed.rcvd.code if closed.rcvd is not None else None


def test_sigterm_lets_the_answers_of_every_worker_end_and_leaves_nothing(
    tmp_path: Path, folder: Path
):
    record = {"SESSION_SERVER__OBSERVABILITY__RECORD_FILE": str(tmp_path / "talks.jsonl")}
    with served(*TWO, TMPDIR=str(folder), SESSION_SERVER__DRAIN__ANSWER_S="300", **record) as (
        process,
        url,
    ):
        workers = psutil.Process(process.pid).children()
        assert len(workers) == 2
        with ExitStack() as stack:
            clients = [stack.enter_context(connect(url)) for _ in range(6)]
            for client in clients:
                client.recv(timeout=HANG_S)
                ask_for_an_answer(client, tokens=16)
            process.send_signal(signal.SIGTERM)
            for client in clients:
                *types, code = read_to_the_end(client)
                assert "response.done" in types
                assert code == 1001
        assert process.wait(timeout=HANG_S) == 0
        assert psutil.wait_procs(workers, timeout=HANG_S)[1] == []
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"talks.w0.jsonl", "talks.w1.jsonl"}
    heads = sum(
        line.count('"kind":"head"') for file in tmp_path.iterdir() for line in [file.read_text()]
    )
    assert heads == len(clients), "each session is in one record"


def test_a_second_signal_ends_all_workers_at_once():
    with (
        served(*TWO, SESSION_SERVER__DRAIN__ANSWER_S="300") as (process, url),
        connect(url) as client,
    ):
        workers = psutil.Process(process.pid).children()
        client.recv(timeout=HANG_S)
        ask_for_an_answer(client)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        *types, code = read_to_the_end(client)
        assert "response.done" in types
        assert code == 1001
        assert process.wait(timeout=HANG_S) == 0
        assert psutil.wait_procs(workers, timeout=HANG_S)[1] == []


def test_when_the_supervisor_is_killed_each_client_hears_why_and_no_worker_stays(folder: Path):
    with served(*TWO, TMPDIR=str(folder)) as (process, url), connect(url) as client:
        workers = psutil.Process(process.pid).children()
        client.recv(timeout=HANG_S)
        ask_for_an_answer(client)
        process.kill()
        said, code = everything(client)
        assert code == 1001
        errors = [event["error"]["message"] for event in said if event["type"] == "error"]
        assert errors == ["The engine host is gone; the session cannot go on."]
        (done,) = [event["response"] for event in said if event["type"] == "response.done"]
        assert done["status"] == "failed"
        assert psutil.wait_procs(workers, timeout=HANG_S)[1] == []


def test_a_folder_whose_name_is_too_long_for_sockets_is_one_line(tmp_path: Path):
    long = tmp_path / ("x" * 80)
    long.mkdir()
    done = run("serve", "--config", "sim.yaml", "--port", "0", *TWO, TMPDIR=str(long))
    one_line(done, 2, "is too long a name for sockets: set TMPDIR")
    assert list(long.glob("session-server-*")) == []


def test_a_port_in_use_is_one_line_before_any_worker_begins():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = run("serve", "--config", "sim.yaml", "--port", str(port), *TWO)
        one_line(done, 2, f"server.port: port {port} of 127.0.0.1 is in use")


def test_what_only_a_worker_can_find_out_is_one_line_too(tmp_path: Path):
    (tmp_path / "talks.w1.jsonl").write_text("no record at all")
    record = {"SESSION_SERVER__OBSERVABILITY__RECORD_FILE": str(tmp_path / "talks.jsonl")}
    done = run("serve", "--config", "sim.yaml", "--port", "0", *TWO, **record)
    one_line(done, 2, "talks.w1.jsonl is there and is no record")


@pytest.mark.parametrize("workers", ["0", "65", "-1"])
def test_a_number_of_workers_that_cannot_be_names_its_key(workers: str):
    done = run("serve", "--config", "sim.yaml", "--workers", workers)
    one_line(done, 2, f"server.workers: {workers} is not within 1 and 64")
