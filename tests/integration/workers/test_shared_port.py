"""One port for all workers, and for nobody else."""

from __future__ import annotations

import socket

import pytest

from session_server.types.errors import ConfigError
from session_server.workers.worker_process import SharedPort

pytestmark = pytest.mark.integration


def listening(port: int, *, share: bool) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if share:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    made.listen()
    return made


def test_workers_listen_on_the_port_that_is_held_and_the_holder_gets_no_connection():
    shared = SharedPort("127.0.0.1", 0)
    with listening(shared.port, share=True) as a, listening(shared.port, share=True) as b:
        clients = [socket.create_connection(("127.0.0.1", shared.port), 5) for _ in range(20)]
        came = 0
        for server in (a, b):
            server.setblocking(False)
            try:
                while True:
                    server.accept()[0].close()
                    came += 1
            except BlockingIOError:
                pass
        for client in clients:
            client.close()
    shared.release()
    shared.release()
    assert came == 20


@pytest.mark.parametrize("share", [False, True])
def test_a_port_on_which_another_server_listens_is_refused_though_it_could_be_shared(share: bool):
    with listening(0, share=share) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"server\.port: port {port} of 127\.0\.0\.1 is in"):
            SharedPort("127.0.0.1", port)


def test_a_host_that_is_not_ours_names_its_key():
    with pytest.raises(ConfigError, match=r"server\.host: cannot listen on 192\.0\.2\.1:0"):
        SharedPort("192.0.2.1", 0)


def test_the_port_is_free_again_after_the_release():
    shared = SharedPort("127.0.0.1", 0)
    port = shared.port
    shared.release()
    again = SharedPort("127.0.0.1", port)
    assert again.port == port
    again.release()
