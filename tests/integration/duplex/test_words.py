"""The words of users, recognised beside a model that hears and speaks at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from engines import registry
from engines.base import StepRequest, StepResult
from engines.model_store.store import ModelStore
from engines.sim.recognition import AsrOptions, SimAsr
from session_server.http.server import Server
from tests.integration.duplex.conftest import Caller, OpenDuplex, calling
from tests.until import until

pytestmark = pytest.mark.integration

SAID = "hello there"
WORDS: dict[str, object] = {
    "graph.words.engine": "sim.asr",
    "graph.words.options.text": SAID,
    "graph.words.options.seconds_per_word": 0.02,
    "vad.engine": "webrtc",
}
DONE = "conversation.item.input_audio_transcription.completed"
FAILED = "conversation.item.input_audio_transcription.failed"


class Slow(SimAsr):
    """Recognises nothing before it may."""

    may = threading.Event()

    def step(self, batch: list[StepRequest]) -> list[StepResult]:  # type: ignore[override]
        self.may.wait(30.0)
        return list(super().step(batch))


def slow(options: Mapping[str, object], store: ModelStore) -> Slow:
    return Slow(AsrOptions())


async def want_words(caller: Caller) -> Any:
    await caller.connection.session.update(
        session={
            "type": "realtime",
            "audio": {"input": {"transcription": {"model": "whisper-1"}}},
        }
    )
    return (await caller.wait("session.updated")).session


def dropped(server: Server) -> float:
    page = server.metrics.render().decode().splitlines()
    name = 'session_server_works_dropped_total{reason="overloaded",stage="asr"}'
    return sum(float(line.rsplit(" ", 1)[1]) for line in page if line.startswith(name))


@pytest.mark.asyncio
async def test_each_turn_that_the_model_tells_of_gets_its_words(open_duplex: OpenDuplex) -> None:
    async with open_duplex(WORDS) as server, calling(server) as caller:
        session = await want_words(caller)
        assert session.audio.input.transcription.model == "whisper-1"
        assert session.audio.input.turn_detection is None
        caller.say(40)
        said = await caller.wait(DONE)
        assert said.transcript == SAID
        committed = caller.of("input_audio_buffer.committed")[0]
        assert said.item_id == committed.item_id
        await caller.connection.conversation.item.retrieve(item_id=said.item_id)
        item = (await caller.wait("conversation.item.retrieved")).item
        assert item.content[0].transcript == SAID
        assert (await caller.wait("response.done")).response.status in ("completed", "cancelled")


@pytest.mark.asyncio
async def test_without_asking_nothing_is_recognised(open_duplex: OpenDuplex) -> None:
    async with open_duplex(WORDS) as server, calling(server) as caller:
        assert caller.events[0].session.audio.input.transcription is None
        caller.say(6)
        await caller.wait("response.done")
        page = server.metrics.render().decode()
        assert 'recognition_seconds_count{partial="false"} 0.0' in page or (
            "recognition_seconds_count" not in page
        )


@pytest.mark.asyncio
async def test_a_model_that_does_not_tell_of_turns_is_overheard_while_it_speaks(
    open_duplex: OpenDuplex,
) -> None:
    """No `speech_started`: a client that stops an answer for it would stop one that the model goes on with."""
    async with (
        open_duplex(WORDS, owns_turns=False, answer_frames=10_000, give_way_frames=10**6) as server,
        calling(server) as caller,
    ):
        await want_words(caller)
        caller.say(20)
        await caller.wait("response.output_audio.delta")
        first = await caller.wait(DONE)
        caller.say(40)  # over the answer
        second = await caller.wait(DONE, 2)
        assert first.item_id != second.item_id
        assert second.transcript == SAID
        assert not caller.of("input_audio_buffer.speech_started")
        assert not caller.of("response.done")
        added = [event.item.id for event in caller.of("conversation.item.added")]
        assert {first.item_id, second.item_id} <= set(added)


@pytest.mark.asyncio
async def test_words_that_lag_are_dropped_and_told_and_keep_nobody_waiting(
    open_duplex: OpenDuplex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "ENGINES", {**registry.ENGINES, "slow": f"{__name__}:slow"})
    Slow.may.clear()
    flags = {**WORDS, "graph.words.engine": "slow", "graph.words.max_waiting": 1}
    async with open_duplex(flags) as server, calling(server) as caller:
        await want_words(caller)
        for number in (1, 2):
            caller.say(4)
            await caller.wait("response.done", number)
        failed = await caller.wait(FAILED)
        assert failed.item_id == caller.of("input_audio_buffer.committed")[1].item_id
        assert "under way" in failed.error.message
        assert dropped(server) == 1
        Slow.may.set()
        said = await caller.wait(DONE)
        assert said.item_id == caller.of("input_audio_buffer.committed")[0].item_id


@pytest.mark.asyncio
async def test_a_session_that_leaves_takes_its_unfinished_words_along(
    open_duplex: OpenDuplex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "ENGINES", {**registry.ENGINES, "slow": f"{__name__}:slow"})
    Slow.may.clear()
    async with open_duplex({**WORDS, "graph.words.engine": "slow"}) as server:
        async with calling(server) as caller:
            await want_words(caller)
            caller.say(4)
            await caller.wait("input_audio_buffer.committed")
        await until(lambda: len(server.registry) == 0)
        Slow.may.set()
        await asyncio.sleep(0.05)
