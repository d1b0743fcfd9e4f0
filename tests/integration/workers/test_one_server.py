"""Two workers are one server: they end together in good order, and show one certificate."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import ssl
from pathlib import Path

import pytest

from session_server.http.worker_identity import Address, slot_of
from tests.integration.transports.webrtc.rtc_caller import calling as calling_by_webrtc
from tests.integration.workers.conftest import KEY, TwoWorkers, two_workers
from tests.until import until

pytestmark = pytest.mark.integration


@pytest.mark.asyncio
@pytest.mark.parametrize("whole", [True, False])
async def test_a_sideband_at_the_other_worker_is_not_cut_while_the_call_still_answers(whole: bool):
    async with (
        two_workers(drain__answer_s=0.5) as workers,  # far less than the answer takes
        calling_by_webrtc(workers.server, key=KEY) as caller,  # type: ignore[arg-type]
    ):
        slot = slot_of(caller.call_id)
        assert slot in (0, 1)
        async with workers.calling(1 - slot, query=f"?call_id={caller.call_id}") as beside:
            answer = await beside.ask("something long")
            await beside.wait("response.output_audio_transcript.delta")
            if whole:
                workers.server.drain.request()
            else:
                os.kill(workers.server.children[1 - slot].pid, signal.SIGTERM)
            if whole:
                assert (await beside.ended(answer))["status"] != "completed"
            assert (await beside.closed())[0] == 1001


@pytest.mark.asyncio
async def test_every_worker_shows_the_certificate_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    async with two_workers(server__tls_self_signed=True) as workers:
        tls, address = workers.server.tls, workers.server.address
        assert tls is not None
        assert address is not None
        tls.certificate.unlink()  # as another server of this user would put a new one there
        await replaced(workers, 1)
        shown = {await fingerprint(address) for _ in range(16)}
        assert shown == {tls.fingerprint.replace(":", "").lower()}


async def replaced(workers: TwoWorkers, slot: int) -> None:
    children = workers.server.children
    old = children[slot]
    os.kill(old.pid, signal.SIGKILL)
    await until(lambda: children.get(slot) not in (None, old) and children[slot].is_open)


async def fingerprint(address: Address) -> str:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return hashlib.sha256(shown).hexdigest()
    finally:
        writer.transport.abort()
