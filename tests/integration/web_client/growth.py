"""Does a page that stays open grow? Histories filled to their bounds, then what the browser holds, twice.

Everything that the page remembers is bounded, so a page is full after some time of talk: that is made up first, by events
like the server's, fed to the page as fast as it takes them. What grows after that grows without end. Sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FILL = """async (turns) => {
  const { client } = await import('/main.js');
  const { conversation } = client;
  const own = client.growthTurns ?? 0;
  client.growthTurns = own + turns;
  const feed = (event) => client.take(event);
  for (let k = own; k < own + turns; k++) {
    const user = `made_user_${k}`, agent = `made_agent_${k}`, response = `made_resp_${k}`;
    feed({ type: 'input_audio_buffer.speech_started', item_id: user, audio_start_ms: 1000 * k });
    feed({ type: 'input_audio_buffer.speech_stopped', item_id: user, audio_end_ms: 1000 * k + 500 });
    feed({ type: 'input_audio_buffer.committed', item_id: user, previous_item_id: null });
    feed({ type: 'conversation.item.added', item: { id: user, type: 'message', role: 'user', content: [] }, previous_item_id: null });
    feed({ type: 'conversation.item.input_audio_transcription.completed', item_id: user, transcript: `what about number ${k}` });
    feed({ type: 'response.created', response: { id: response } });
    feed({ type: 'response.output_item.added', response_id: response, item: { id: agent, type: 'message', role: 'assistant' } });
    for (let word = 0; word < 12; word++) {
      feed({ type: 'response.output_audio_transcript.delta', response_id: response, item_id: agent, delta: `word ${word} ` });
      feed({ type: 'response.output_audio.delta', response_id: response, item_id: agent, content_index: 0, delta: 'A'.repeat(6400) });
    }
    feed({ type: 'output_audio_buffer.started', response_id: response });
    conversation.heard(response, performance.now());
    for (let ack = 1; ack <= 12; ack++) {
      const samples = 2400 * ack;
      feed({ type: 'playback.acknowledged', response_id: response, item_id: agent, played_ms: 100 * ack,
        generated_samples: 57600, sent_samples: 28800, played_samples: samples });
    }
    conversation.gap(20, performance.now());
    feed({ type: 'playback.mute', response_id: response, epoch: k, reversible: false });
    feed({ type: 'output_audio_buffer.cleared', response_id: response });
    feed({ type: 'conversation.item.truncated', item_id: agent, content_index: 0, audio_end_ms: 900 });
    feed({ type: 'response.done', response: { id: response, status: 'cancelled', status_details: { reason: 'turn_detected' },
      output: [{ id: agent, type: 'message' }] } });
    client.changed();
    if (k % 20 === 0) await new Promise(requestAnimationFrame);
  }
  await new Promise(requestAnimationFrame);
}"""
KEPT = """() => import('/main.js').then(({ client }) => {
  const { captions, timeline, turns, items } = client.conversation;
  return { lines: captions.lines.length, samples: timeline.samples.length, spans: timeline.spans.length, marks: timeline.marks.length,
    turns: turns.turns.length, items: items.size, events: client.log.entries.length,
    lost: timeline.marks.filter(({ text }) => text === 'connected again').length };
})"""
BOUNDS = {
    "lines": 400, "samples": 20_000, "spans": 20_000, "marks": 20_000, "turns": 200, "items": 51, "events": 3300,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the browser holds for a page, after a collection of its garbage."""

    heap: int
    nodes: int
    listeners: int
    audio_nodes: int
    peers: int

    def __str__(self) -> str:
        return (
            f"heap {self.heap / 1e6:.1f} MB, {self.nodes} nodes, {self.listeners} listeners, "
            f"{self.audio_nodes} audio nodes, {self.peers} peer connections"
        )


def holdings(page: Any) -> Holdings:
    """Asked through the browser's own inspector."""
    inspector = page.context.new_cdp_session(page)
    inspector.send("HeapProfiler.enable")
    for _ in range(3):  # what only finalisers hold goes with the second
        inspector.send("HeapProfiler.collectGarbage")
    inspector.send("Performance.enable")
    found = {
        m["name"]: int(m["value"]) for m in inspector.send("Performance.getMetrics")["metrics"]
    }
    inspector.detach()
    return Holdings(
        found["JSHeapUsedSize"],
        found["Nodes"],
        found["JSEventListeners"],
        found.get("AudioHandlers", 0),
        found.get("RTCPeerConnections", 0),
    )
