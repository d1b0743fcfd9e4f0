// The event log, the settings and the words for what goes wrong.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { EventLog, shorten } from '../../../web_client/model/event_log.js';
import { Fault, TEXTS, closeFault, httpFault, microphoneFault, retryDelay } from '../../../web_client/model/faults.js';
import { DEFAULTS, restore, sessionOf } from '../../../web_client/model/settings.js';

test('the log keeps no audio and no key', () => {
  const log = new EventLog();
  log.add('out', { type: 'x', audio: 'A'.repeat(1280), nested: { value: 'ek_secret', list: ['b'.repeat(1000)] } }, 1);
  const text = log.exported();
  assert.ok(!text.includes('AAAA') && !text.includes('ek_secret') && text.length < 700);
});

test('the log is bounded, and a stream of audio does not push the rest out', () => {
  const log = new EventLog(100);
  log.add('in', { type: 'session.created' }, 0);
  for (let at = 0; at < 60000; at += 20) log.add('out', { type: 'input_audio_buffer.append', audio: 'AAAA' }, at);
  assert.equal(log.entries[0].type, 'session.created');
  assert.equal(log.entries.length, 61);
  assert.equal(log.entries[1].times, 50);
  for (let k = 0; k < 1000; k++) log.add('in', { type: `t${k}` }, k);
  assert.ok(log.entries.length <= 110 && log.entries.at(-1).type === 't999');
});

test('filter words all have to be there, and -words must not', () => {
  const log = new EventLog();
  log.add('in', { type: 'response.created', response: { id: 'r1' } }, 1);
  log.add('in', { type: 'response.done', response: { id: 'r1' } }, 2);
  log.add('out', { type: 'response.create' }, 3);
  const types = (filter) => log.matching(filter).map((entry) => entry.type);
  assert.deepEqual(types('r1'), ['response.created', 'response.done']);
  assert.deepEqual(types('RESPONSE -done -out'), ['response.created']);
  assert.deepEqual(types(''), ['response.created', 'response.done', 'response.create']);
  assert.equal(log.matching('', 1).length, 1);
  log.add('in', { type: 'output_audio_buffer.started' }, 4);
  assert.deepEqual(types('out'), ['response.create']);
  assert.deepEqual(types('-in'), ['response.create']);
  assert.deepEqual(types('output'), ['output_audio_buffer.started']);
});

test('an export can be read back', () => {
  const log = new EventLog();
  log.add('in', { type: 'a', x: null, y: [1, { z: true }] }, 12.4);
  log.add('out', { type: 'b' }, 13);
  const lines = log.exported().split('\n').map((line) => JSON.parse(line));
  assert.deepEqual(lines[0], { at_ms: 12, direction: 'in', event: { type: 'a', x: null, y: [1, { z: true }] }, times: 1 });
  assert.equal(lines.length, 2);
  assert.deepEqual(shorten({ delta: 'short' }), { delta: 'short' });
});

test('stored settings that are wrong give way to the defaults', () => {
  assert.deepEqual(restore(null), DEFAULTS);
  const settings = restore({ transport: 'pigeon', speed: 99, threshold: 0.3, voice: 7, echoCancellation: false, unknown: 1 });
  assert.deepEqual(settings, { ...DEFAULTS, threshold: 0.3, echoCancellation: false });
});

test('settings become a session that says what was chosen and no more', () => {
  assert.deepEqual(sessionOf(DEFAULTS), {
    type: 'realtime',
    audio: {
      input: {
        transcription: { model: 'default' },
        turn_detection: { type: 'server_vad', create_response: true, interrupt_response: true, threshold: 0.5, silence_duration_ms: 500 },
      },
      output: { speed: 1 },
    },
  });
  const semantic = sessionOf({ ...DEFAULTS, detection: 'semantic_vad', eagerness: 'high', voice: 'ash', instructions: 'Be brief.', interruptible: false });
  assert.deepEqual(semantic.audio.input.turn_detection, {
    type: 'semantic_vad', create_response: true, interrupt_response: false, eagerness: 'high',
  });
  assert.deepEqual([semantic.audio.output.voice, semantic.instructions], ['ash', 'Be brief.']);
  assert.equal(sessionOf({ ...DEFAULTS, detection: 'manual' }).audio.input.turn_detection, null);
  assert.equal('voice' in sessionOf({ ...DEFAULTS, voice: 'ash' }, true).audio.output, false);
});

test('every refusal has its own words', () => {
  const body = (param) => JSON.stringify({ error: { message: 'm', param } });
  assert.equal(httpFault(503, body('full')).kind, 'full');
  assert.equal(httpFault(503, body('draining')).kind, 'not_ready');
  assert.equal(httpFault(401, body(null)).kind, 'key');
  assert.equal(httpFault(400, 'not json').kind, 'refused');
  assert.equal(microphoneFault({ name: 'NotAllowedError', message: '' }).kind, 'no_permission');
  assert.equal(microphoneFault({ name: 'NotFoundError', message: '' }).kind, 'no_microphone');
  assert.equal(microphoneFault({ name: 'TypeError', message: 'x' }).kind, 'internal');
  assert.ok(closeFault(1006, '').retry && !new Fault('full').retry);
  assert.equal(closeFault(1001, 'over', true).kind, 'expired');
  for (const [what, advice] of Object.values(TEXTS)) assert.ok(what.length > 10 && advice.length > 10);
});

test('connecting again waits longer each time and ends', () => {
  const delays = [0, 1, 2, 3, 4, 5].map(retryDelay);
  assert.equal(delays.at(-1), null);
  for (let k = 1; k < 5; k++) assert.ok(delays[k] > delays[k - 1]);
});
