// The playback ring, the reports of it, and mute by generation.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { MuteGate, reached } from '../../../web_client/model/mute_gate.js';
import { FADE, PlaybackRing } from '../../../web_client/model/playback_ring.js';
import { PlaybackReports, keyOf } from '../../../web_client/model/playback_reports.js';

const KEY = keyOf('resp_1', 'item_1', 0);
const tone = (n, value = 16384) => new Int16Array(n).fill(value);

function pull(ring, n) {
  const out = new Float32Array(n);
  ring.pull(out);
  return out;
}

test('parts sound one after the other, to the sample', () => {
  const ring = new PlaybackRing();
  ring.push('a|i|0', tone(100, 100));
  ring.push('b|j|0', tone(100, 200));
  ring.complete('a|i|0');
  const out = pull(ring, 150);
  assert.equal(out[99], Math.fround(100 / 32768));
  assert.equal(out[100], Math.fround(200 / 32768));
  const { playing, ended } = ring.report();
  assert.deepEqual([ended.length, ended[0].played, playing.key, playing.played], [1, 100, 'b|j|0', 50]);
  assert.equal(ring.report().ended.length, 0);
});

test('a gap counts once, with its length, and no sample is lost in it', () => {
  const ring = new PlaybackRing();
  ring.push(KEY, tone(100));
  pull(ring, 300);
  let { playing } = ring.report();
  assert.deepEqual([playing.underruns, playing.missing, playing.played, playing.dry], [1, 200, 100, true]);
  ring.push(KEY, tone(50));
  pull(ring, 50);
  ({ playing } = ring.report());
  assert.deepEqual([playing.underruns, playing.missing, playing.played], [1, 200, 150]);
});

test('nothing counts as a gap before the first sample and after the last', () => {
  const ring = new PlaybackRing();
  ring.push(KEY, tone(0));
  pull(ring, 100);
  ring.push(KEY, tone(10));
  ring.complete(KEY);
  pull(ring, 100);
  assert.deepEqual(ring.report().ended.map((part) => [part.underruns, part.played]), [[0, 10]]);
});

test('a cut is silent after 3 ms, ends the part once, and swallows what comes late', () => {
  const ring = new PlaybackRing();
  ring.push(KEY, tone(1000));
  pull(ring, 200);
  ring.cut((key) => key.startsWith('resp_1|'));
  const out = pull(ring, 400);
  const last = out.findLastIndex((sample) => sample !== 0);
  assert.ok(last < FADE && last > FADE / 2, `last sound at ${last}`);
  for (let i = 1; i <= last; i++) assert.ok(Math.abs(out[i] - out[i - 1]) < 0.02, 'a fade has no step');
  const { playing, ended } = ring.report();
  assert.equal(playing, null);
  assert.equal(ended.length, 1);
  assert.ok(ended[0].cut && ended[0].played >= 200 && ended[0].played <= 200 + FADE);
  ring.push(KEY, tone(500));
  assert.equal(pull(ring, 100).some((sample) => sample !== 0), false);
  assert.equal(ring.dropped, 500);
});

test('what follows a cut sounds from its first sample', () => {
  const ring = new PlaybackRing();
  ring.push('old|i|0', tone(1000));
  ring.push('new|j|0', tone(300, 8000));
  pull(ring, 100);
  ring.cut((key) => key.startsWith('old|'));
  const out = pull(ring, 400);
  assert.equal(out.filter((sample) => sample === 8000 / 32768).length, 300);
});

test('a cut of what has not begun says nothing was played', () => {
  const ring = new PlaybackRing();
  ring.push(KEY, tone(100));
  ring.cut(() => true);
  assert.deepEqual(ring.report().ended.map((part) => [part.played, part.cut]), [[0, true]]);
});

test('held sound goes on where it stopped', () => {
  const ring = new PlaybackRing();
  const ramp = Int16Array.from({ length: 2000 }, (_, k) => k);
  ring.push(KEY, ramp);
  pull(ring, 500);
  ring.hold();
  pull(ring, 1000);
  const { played } = ring.report().playing;
  assert.ok(played >= 500 && played <= 500 + FADE);
  ring.release();
  const out = pull(ring, 200);
  assert.equal(Math.round(out[199] * 32768), played + 199);
});

test('a cut ends a hold', () => {
  const ring = new PlaybackRing();
  ring.push(KEY, tone(500));
  pull(ring, 10);
  ring.hold();
  pull(ring, 200);
  ring.cut(() => true);
  ring.push('next|j|0', tone(200, 8000));
  assert.equal(pull(ring, 300).filter((sample) => sample === 8000 / 32768).length, 200);
});

test('reports count what was heard, never fall, and end once', () => {
  const ring = new PlaybackRing();
  const reports = new PlaybackReports(24000, 100);
  const acks = [];
  const begun = [];
  ring.push(KEY, tone(24000));
  for (let now = 0; now < 1500; now += 20) {
    if (now === 600) ring.complete(KEY);
    pull(ring, 480);
    const news = reports.take(ring.report(), 50, now);
    acks.push(...news.acks);
    begun.push(...news.begun);
  }
  assert.equal(begun.length, 1);
  assert.ok(acks.length >= 9 && acks.length <= 12, `${acks.length} reports in a second`);
  acks.forEach((ack, k) => assert.ok(k === 0 || ack.played_samples >= acks[k - 1].played_samples));
  assert.deepEqual(acks.map((ack) => ack.final).filter(Boolean), [true]);
  assert.equal(acks.at(-1).played_samples, 24000);
  assert.deepEqual(
    [acks[0].type, acks[0].response_id, acks[0].item_id, acks[0].content_index],
    ['playback.ack', 'resp_1', 'item_1', 0],
  );
  assert.ok(acks[0].played_samples < 480 * 4, 'the sound card is not forgotten');
});

test('the last report is due by itself: an empty ring says nothing more', () => {
  const ring = new PlaybackRing();
  const reports = new PlaybackReports(24000, 100);
  ring.push(KEY, tone(24000));
  ring.complete(KEY);
  pull(ring, 24000);
  assert.equal(reports.due, null);
  const { acks } = reports.take(ring.report(), 50, 1000);
  assert.deepEqual([acks.some((ack) => ack.final), reports.due], [false, 1050]);
  const last = reports.take({ playing: null, ended: [], held: false }, 50, 1050);
  assert.deepEqual(last.acks.map((ack) => [ack.final, ack.played_samples]), [[true, 24000]]);
  assert.equal(reports.due, null);
});

test('a cut is reported at once, with all that had left the ring', () => {
  const ring = new PlaybackRing();
  const reports = new PlaybackReports();
  ring.push(KEY, tone(24000));
  pull(ring, 4800);
  reports.take(ring.report(), 50, 200);
  ring.cut(() => true);
  pull(ring, 128);
  const { acks } = reports.take(ring.report(), 50, 205);
  assert.equal(acks.length, 1);
  assert.ok(acks[0].final && acks[0].played_samples >= 4800 && acks[0].buffered_ms === 0);
});

test('a gap is told when it is over', () => {
  const ring = new PlaybackRing();
  const reports = new PlaybackReports();
  ring.push(KEY, tone(480));
  pull(ring, 480 + 2400);
  assert.deepEqual(reports.take(ring.report(), 0, 120).gaps, []);
  ring.push(KEY, tone(480));
  pull(ring, 240);
  const { gaps } = reports.take(ring.report(), 0, 140);
  assert.deepEqual(gaps, [{ responseId: 'resp_1', ms: 100 }]);
});

test('RTP time stamps wrap', () => {
  assert.ok(reached(5, 4294967290));
  assert.ok(!reached(4294967290, 5));
  assert.ok(reached(7, 7));
});

test('the gate opens at the packet that the server named, not before', () => {
  const gate = new MuteGate();
  assert.ok(gate.open);
  gate.mute(3);
  gate.play(3, 1000);
  assert.ok(!gate.open && !gate.poll(999));
  assert.ok(gate.poll(1000) && gate.open);
});

test('a play that is older than the mute opens nothing', () => {
  const gate = new MuteGate();
  gate.mute(4);
  gate.play(3, 10);
  assert.ok(!gate.poll(1000) && !gate.open);
  gate.play(4, undefined);
  assert.ok(gate.open);
});

test('a mute before the named packet takes the opening back', () => {
  const gate = new MuteGate();
  gate.mute(1);
  gate.play(1, 1000);
  gate.mute(2);
  assert.ok(!gate.poll(2000) && !gate.open);
});
