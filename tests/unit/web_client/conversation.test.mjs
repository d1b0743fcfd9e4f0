// What the server's events mean for captions, timeline, latencies and state.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { AGAIN, Conversation } from '../../../web_client/model/conversation.js';
import { Captions, commonPrefix, wordsUpTo } from '../../../web_client/model/captions.js';
import { KEPT_MS, Timeline, describe } from '../../../web_client/model/timeline.js';
import { Turns, breakdown, medianTotal } from '../../../web_client/model/turns.js';

const SESSION = { audio: { input: { turn_detection: { type: 'server_vad', prefix_padding_ms: 300 } } } };

/** A conversation in which the user asked and the agent speaks since 2000 ms. */
function speaking() {
  const c = new Conversation();
  const say = (event, now, voiced = null) => c.handle(event, now, voiced);
  c.inputStart = 0;
  say({ type: 'session.created', session: SESSION }, 0);
  say({ type: 'input_audio_buffer.speech_started', item_id: 'u1', audio_start_ms: 200 }, 620);
  say({ type: 'input_audio_buffer.speech_stopped', item_id: 'u1', audio_end_ms: 1500 }, 1500, 1000);
  say({ type: 'input_audio_buffer.committed', item_id: 'u1', previous_item_id: null }, 1500);
  say({ type: 'response.created', response: { id: 'r1' } }, 1510);
  say({ type: 'response.output_item.added', response_id: 'r1', item: { id: 'a1', type: 'message' } }, 1600);
  say({ type: 'conversation.item.added', item: { id: 'a1', type: 'message', role: 'assistant', content: [] }, previous_item_id: 'u1' }, 1600);
  say({ type: 'response.output_audio_transcript.delta', response_id: 'r1', item_id: 'a1', delta: 'It is sunny ' }, 1700);
  say({ type: 'response.output_audio_transcript.delta', response_id: 'r1', item_id: 'a1', delta: 'in Paris today.' }, 1750);
  say({ type: 'playback.play', response_id: 'r1', epoch: 1 }, 1900);
  say({ type: 'output_audio_buffer.started', response_id: 'r1' }, 2010);
  c.heard('r1', 2000);
  return { c, say };
}

test('the state follows what happens', () => {
  const c = new Conversation();
  const states = [c.state];
  const say = (event) => {
    c.handle(event, 0);
    states.push(c.state);
  };
  say({ type: 'input_audio_buffer.speech_started', item_id: 'u', audio_start_ms: 0 });
  say({ type: 'input_audio_buffer.speech_stopped', item_id: 'u', audio_end_ms: 0 });
  say({ type: 'response.created', response: { id: 'r' } });
  say({ type: 'output_audio_buffer.started', response_id: 'r' });
  say({ type: 'playback.mute', response_id: 'r', epoch: 1, reversible: true });
  say({ type: 'playback.play', response_id: 'r', epoch: 1 });
  say({ type: 'response.done', response: { id: 'r', status: 'completed', output: [] } });
  say({ type: 'output_audio_buffer.stopped', response_id: 'r' });
  assert.deepEqual(states, [
    'listening', 'hearing', 'thinking', 'thinking', 'speaking', 'held', 'speaking', 'speaking', 'listening',
  ]);
});

test('a line whose words will never come says so once the connection is gone, and waits no longer', () => {
  const { c, say } = speaking();
  say({ type: 'conversation.item.input_audio_transcription.completed', item_id: 'u1', transcript: 'How is the weather?' }, 2100);
  say({ type: 'input_audio_buffer.speech_started', item_id: 'u2', audio_start_ms: 2900 }, 3000);
  c.ended(3100);
  assert.deepEqual(c.captions.lines.map((line) => [line.id, line.note]), [['u1', ''], ['a1', ''], ['u2', 'no transcript']]);
});

test('the legs of a latency add up, from the last voiced sound on', () => {
  const { c } = speaking();
  const { legs, total } = breakdown(c.turns.turns[0]);
  assert.deepEqual(legs, { noticed: 500, thought: 200, spoke: 200, arrived: 100 });
  assert.equal(total, 1000);
  assert.equal(c.timeline.marks.find((mark) => mark.kind === 'latency').text, 'answer after 1000 ms');
});

test('speech stands where it was said, not where it was noticed', () => {
  const { c } = speaking();
  const span = c.timeline.spans.find((entry) => entry.lane === 'user');
  assert.deepEqual([span.from, span.to], [500, 1000]);
});

test('an interruption strikes out what was not heard, to the word that the server kept', () => {
  const { c, say } = speaking();
  say({ type: 'playback.mute', response_id: 'r1', epoch: 2, reversible: false }, 2800);
  say({ type: 'output_audio_buffer.cleared', response_id: 'r1' }, 2801);
  const answers = say({ type: 'conversation.item.truncated', item_id: 'a1', content_index: 0, audio_end_ms: 800 }, 2802);
  assert.deepEqual(answers, [{ type: 'conversation.item.retrieve', item_id: 'a1' }]);
  const line = c.captions.byId.get('a1');
  assert.equal(line.note, 'interrupted');
  say({ type: 'conversation.item.retrieved', item: { id: 'a1', content: [{ type: 'output_audio', transcript: 'It is sunny in' }] } }, 2850);
  assert.deepEqual(c.captions.pieces(line), [
    { kind: 'heard', text: 'It is sunny in' },
    { kind: 'unheard', text: ' Paris today.' },
  ]);
  assert.deepEqual(c.timeline.marks.filter((mark) => mark.kind === 'barge_in').length, 1);
  assert.ok(c.turns.turns[0].interrupted);
  assert.equal(c.playing, null);
});

test('an item that was cut before its first sound is struck out whole', () => {
  const { c, say } = speaking();
  say({ type: 'conversation.item.truncated', item_id: 'a1', content_index: 0, audio_end_ms: 0 }, 2100);
  say({ type: 'conversation.item.retrieved', item: { id: 'a1', content: [{ type: 'output_audio', transcript: null }] } }, 2110);
  assert.deepEqual(c.captions.pieces(c.captions.byId.get('a1')).map((piece) => piece.kind), ['unheard']);
});

test('a noise that only held the answer back is a duck, no interruption', () => {
  const { c, say } = speaking();
  say({ type: 'playback.mute', response_id: 'r1', epoch: 1, reversible: true }, 2500);
  say({ type: 'playback.play', response_id: 'r1', epoch: 1 }, 2900);
  const duck = c.timeline.spans.find((span) => span.lane === 'duck');
  assert.deepEqual([duck.from, duck.to], [2500, 2900]);
  assert.equal(c.timeline.marks.some((mark) => mark.kind === 'barge_in'), false);
  assert.equal(c.state, 'speaking');
});

test('acknowledgements move the frontiers and the words', () => {
  const { c, say } = speaking();
  say({
    type: 'playback.acknowledged', response_id: 'r1', item_id: 'a1', accepted: true, reason: null,
    played_samples: 24000, played_ms: 1000, sent_samples: 48000, generated_samples: 60000,
  }, 3000);
  assert.deepEqual(c.timeline.samples.at(-1), { at: 3000, id: 'r1', generated: 2500, sent: 2000, played: 1000 });
  const pieces = c.captions.pieces(c.captions.byId.get('a1'));
  assert.deepEqual(pieces.map((piece) => piece.kind), ['heard', 'coming']);
});

test('a lost connection leaves the words and nothing else open', () => {
  const { c } = speaking();
  c.ended(2500);
  assert.equal(c.state, 'listening');
  assert.ok(c.timeline.spans.every((span) => span.to !== null));
  assert.equal(c.captions.lines.length, 2);
});

test('a new session is told what was heard, not what was struck out', () => {
  const { c, say } = speaking();
  c.captions.set('u1', 'user', 'How is Paris?');
  say({ type: 'conversation.item.truncated', item_id: 'a1', content_index: 0, audio_end_ms: 800 }, 2802);
  say({ type: 'conversation.item.retrieved', item: { id: 'a1', content: [{ transcript: 'It is' }] } }, 2810);
  assert.deepEqual(c.captions.history().map((item) => [item.role, item.content[0].type, item.content[0].text]), [
    ['user', 'input_text', 'How is Paris?'],
    ['assistant', 'output_text', 'It is'],
  ]);
  say({ type: 'conversation.item.added', item: { id: `${AGAIN}0`, type: 'message', role: 'user', content: [] } }, 3000);
  assert.equal(c.captions.lines.length, 2);
});

test('a race that hurts nobody is no notice', () => {
  const { c, say } = speaking();
  say({ type: 'error', error: { code: 'response_cancel_not_active', message: 'x' } }, 1);
  assert.equal(c.notice, '');
  say({ type: 'error', error: { code: 'invalid_value', message: 'bad voice' } }, 1);
  assert.equal(c.notice, 'bad voice');
});

test('unknown events are nothing', () => {
  assert.deepEqual(new Conversation().handle({ type: 'rate_limits.updated' }, 0), []);
});

test('lines stand in the order of the conversation', () => {
  const captions = new Captions();
  captions.line('a', 'user');
  captions.line('c', 'agent');
  captions.line('b', 'user', 'a');
  assert.deepEqual(captions.lines.map((line) => line.id), ['a', 'b', 'c']);
});

test('prefixes end at words and do not mind white space', () => {
  assert.equal(wordsUpTo('one two three', 5), 3);
  assert.equal(wordsUpTo('one two three', 7), 7);
  assert.equal(wordsUpTo('one two', 99), 7);
  assert.equal(wordsUpTo('one two', 2), 0);
  assert.equal(commonPrefix('one  two three', 'one two'), 8);
  assert.equal(commonPrefix('one two', 'one too'), 5);
  assert.equal(commonPrefix('one two', ''), 0);
});

test('a page that stays open for hours does not grow', () => {
  const timeline = new Timeline();
  const captions = new Captions();
  const turns = new Turns();
  for (let at = 0; at < 3 * 3600e3; at += 1000) {
    timeline.open('user', at);
    timeline.mark('latency', at, '');
    timeline.frontier(at, 'r', 1, 1, 1);
    captions.line(`item${at}`, 'user');
    turns.ended(at, null);
    turns.answered(`resp${at}`);
  }
  const kept = KEPT_MS / 1000 + 2;
  assert.ok(timeline.spans.length <= kept && timeline.marks.length <= kept && timeline.samples.length <= kept);
  assert.ok(captions.lines.length <= 400 && captions.byId.size === captions.lines.length);
  assert.ok(turns.turns.length <= 200 && turns.byResponse.size <= 200);
});

test('inspecting says what was going on', () => {
  const timeline = new Timeline();
  timeline.add('reply', 1000, 3000);
  timeline.frontier(1500, 'r', 2000, 1500, 500);
  timeline.mark('barge_in', 1600, 'interrupted');
  const found = timeline.inspect(1590, 50);
  assert.equal(describe(found, 0), '1.59 s · answer audible (2000 ms) · interrupted · generated 2.00 s, sent 1.50 s, played 0.50 s');
  assert.equal(timeline.inspect(9000, 50).sample, null);
});

test('the median counts turns that were answered', () => {
  const turn = (arrived) => ({ start: 0, noticed: 0, thought: null, spoke: null, arrived });
  assert.equal(medianTotal([turn(null)]), null);
  assert.equal(medianTotal([turn(100), turn(null), turn(300)]), 200);
});
