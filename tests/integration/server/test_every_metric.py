"""Each family of the metrics page has samples after one evening of conversation, or a reason why it has none."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import InvalidStatus

from session_server.http.server import Server
from session_server.observability.catalogue import PREFIX, SPECS, MetricKind, Spec, StopLeg
from tests.integration.server.caller import Caller, append, calling, silence
from tests.integration.server.camera_frames import EYES, look, opt_in, with_video
from tests.integration.server.conftest import OpenServer
from tests.integration.server.inside import task_of
from tests.integration.server.sounds import speech
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

TROUBLE = "only counts what should not happen; tests of engine faults and of host_report feed it"
MOVING = "needs an engine whose state can be moved: tests of host residency and of host_report"
DUPLEX = "comes with a duplex model: tests/integration/duplex"
STREAMING = "comes with a thinker that schedules itself: test_streaming_thinker and test_metrics"
CALLS = "comes with WebRTC calls: test_media_paths"
WITHOUT_SAMPLES = {
    "webrtc_calls": CALLS,
    "webrtc_send_lateness_seconds": CALLS,
    "webrtc_video_frames": CALLS,
    "webrtc_video_faults": TROUBLE,
    "duplex_ticks": DUPLEX,
    "duplex_ticks_missed": DUPLEX,
    "duplex_frames_filled": DUPLEX,
    "duplex_input_dropped_samples": DUPLEX,
    "duplex_slots": DUPLEX,
    "duplex_sessions": DUPLEX,
    "duplex_saved_bytes": DUPLEX,
    "duplex_slots_given_up": DUPLEX,
    "duplex_slot_waits_missed": DUPLEX,
    "duplex_slot_wait_seconds": DUPLEX,
    "stuck_sessions": TROUBLE,
    "stage_failures": TROUBLE,
    "runaway_answers": TROUBLE,
    "works_dropped": TROUBLE,
    "unknown_counts": TROUBLE,
    "worker_ends": TROUBLE,
    "stage_starved_steps": "needs a stage that is held back by the one below; tests of the host",
    "outbox_bytes": "0 unless a client reads slowly; test_slow_readers",
    "kv_blocks": MOVING,
    "kv_evictions": MOVING,
    "kv_reload_seconds": MOVING,
    "kv_preloads": MOVING,
    "kv_preload_bytes": MOVING,
    "engine_answers": STREAMING,
    "engine_state_used_ratio": STREAMING,
}

Samples = dict[str, list[tuple[dict[str, str], float]]]


async def scrape(server: Server) -> Samples:
    """What the page says, by exposed name."""
    assert server.address is not None
    async with aiohttp.ClientSession() as http, http.get(f"{server.address.http}/metrics") as page:
        text = await page.text()
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def highest(spec: Spec, found: Samples) -> float:
    """The largest of the family's series; of a histogram, its number of observations. A gauge whose labels are open
    has no series until it is fed, and may be 0 then."""
    name = spec.exposed_name + ("_count" if spec.kind is MetricKind.HISTOGRAM else "")
    series = found.get(name, [])
    if spec.kind is MetricKind.GAUGE and any(label.values is None for label in spec.labels):
        return float(len(series))
    return max((value for _, value in series), default=0.0)


async def follow(caller: Caller, name: str, *, final: bool = False) -> None:
    """Report what came of the answer as played."""
    item_id = caller.of("response.output_item.added")[-1]["item"]["id"]
    played = len(caller.pcm(name)) // 2
    await caller.send(
        {
            "type": "playback.ack",
            "response_id": name,
            "item_id": item_id,
            "played_samples": played,
            "buffered_ms": 0,
            "final": final,
        }
    )
    await caller.fence()


async def spoken_turn(caller: Caller) -> str:
    """Speak, with a pause in which a draft is begun in vain; the name of the answer, which sounds."""
    start = len(caller.events)
    await caller.append(speech(0.5))
    await caller.speak(silence(0.35), speech(0.3, 2), silence(0.8))
    created = await caller.wait("response.created", start)
    name = str(created["response"]["id"])
    await caller.until(lambda: bool(caller.pcm(name)))
    await follow(caller, name)
    return name


async def interrupted(caller: Caller) -> None:
    """Semantic turn taking: the long answer ducks, then is stopped, and the client says where it stopped."""
    name = await caller.begin_long_answer(0.3)
    await follow(caller, name)
    start = len(caller.events)
    await caller.speak(speech(1.2), silence(0.2))
    await caller.ended(name)
    await follow(caller, name, final=True)
    await caller.speak(silence(1.0))
    created = await caller.wait("response.created", start)
    await caller.ended(created["response"]["id"])


async def unacknowledged(caller: Caller) -> None:
    """A client that stops reporting: the frontier falls back to an estimate."""
    name = await caller.begin_long_answer(0.3)
    await follow(caller, name)
    await caller.hear(name, 2.0)
    await caller.send({"type": "response.cancel"})
    await caller.ended(name)


async def with_a_camera(caller: Caller) -> None:
    """A frame is looked at, and told to an answer."""
    await opt_in(caller, report=True)
    await look(caller, 1)
    await caller.ended(await caller.ask("what do you see"))
    await caller.update({"extensions": {"video": None}})


async def with_a_backlog(server: Server, caller: Caller) -> Samples:
    """A scrape that met input which nobody had heard yet; it may be heard before the scrape, on a busy machine."""
    spec = next(spec for spec in SPECS if spec.name == "input_backlog_seconds")
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await caller.send(append(silence(20)))
            await until(lambda: task_of(server, caller).input_backlog_s > 0)
            page = await scrape(server)
            if highest(spec, page) > 0:
                return page


@pytest.mark.asyncio
async def test_a_conversation_feeds_every_family(serve: OpenServer):
    async with serve(**EYES, scheduler__max_sessions=1) as server:
        url = f"{with_video(server)},playback"
        async with calling(url) as caller:
            with pytest.raises(InvalidStatus):
                async with calling(url):
                    pass
            await caller.update({"audio": {"input": {"transcription": {"model": "any"}}}})
            await caller.detect({"type": "semantic_vad"})
            name = await spoken_turn(caller)
            await caller.ended(name)
            await follow(caller, name, final=True)
            await interrupted(caller)
            await with_a_camera(caller)
            await unacknowledged(caller)
            await caller.send("nonsense")
            await caller.fence()
            await caller.ask("something long")
            during = await with_a_backlog(server, caller)
            await caller.send({"type": "response.cancel"})
            await caller.fence()
        await until(lambda: len(server.registry) == 0)
        after = await scrape(server)
    silent = {
        spec.name for spec in SPECS if not max(highest(spec, during), highest(spec, after)) > 0
    }
    assert silent <= set(WITHOUT_SAMPLES), "declared, and fed by nothing"
    legs = {
        labels["leg"]
        for labels, count in after[f"{PREFIX}_interruption_stop_seconds_count"]
        if count
    }
    assert legs == {leg.value for leg in StopLeg}
    origins = {
        labels["origin"]
        for labels, count in after[f"{PREFIX}_turn_first_audio_seconds_count"]
        if count
    }
    assert origins == {"client_ack", "server_estimate"}
    kept = {
        labels["reason"]
        for labels, count in after[f"{PREFIX}_video_frames_total"]
        if count and labels["kept"] == "yes"
    }
    assert kept
