// Samples: resampling, spelling, loudness.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { decode, encode, loudness, meterLevel, toInt16 } from '../../../web_client/model/pcm.js';
import { Resampler } from '../../../web_client/model/resampler.js';
import { VoiceTrace } from '../../../web_client/model/voice_trace.js';

const sine = (hz, rate, n) => Float32Array.from({ length: n }, (_, k) => 0.5 * Math.sin((2 * Math.PI * hz * k) / rate));

function resampled(input, from, to, step) {
  const resampler = new Resampler(from, to);
  const out = [];
  for (let k = 0; k < input.length; k += step) out.push(...resampler.push(input.subarray(k, k + step)));
  return out;
}

test('a stream in pieces gives the same samples as in one piece', () => {
  const input = sine(700, 44100, 8000);
  const whole = resampled(input, 44100, 24000, 8000);
  for (const step of [128, 882, 997]) {
    const pieces = resampled(input, 44100, 24000, step);
    const n = Math.min(whole.length, pieces.length);
    assert.ok(n > 4200);
    for (let k = 0; k < n; k++) assert.ok(Math.abs(whole[k] - pieces[k]) < 1e-6, `sample ${k}`);
  }
});

test('a tone keeps its pitch and its level, and starts where it started', () => {
  for (const rate of [16000, 44100, 48000]) {
    const out = resampled(sine(1000, rate, rate), rate, 24000, 960);
    for (let k = 200; k < 20000; k += 7) {
      const expected = 0.5 * Math.sin((2 * Math.PI * 1000 * k) / 24000);
      assert.ok(Math.abs(out[k] - expected) < 0.01, `${rate} Hz, sample ${k}: ${out[k]} for ${expected}`);
    }
  }
});

test('what 24 kHz cannot hold does not come back as another tone', () => {
  const out = resampled(sine(17000, 48000, 48000), 48000, 24000, 960);
  assert.ok(loudness(out.slice(500, 20000)) < 0.003);
});

test('a long stream loses no sample', () => {
  const resampler = new Resampler(44100, 24000);
  let count = 0;
  const block = new Float32Array(44100);
  for (let second = 0; second < 40; second++) count += resampler.push(block).length;
  assert.ok(Math.abs(count - 40 * 24000) < 40, `${count} samples in 40 s`);
});

test('samples survive their spelling', () => {
  const samples = Int16Array.from([0, 1, -1, 32767, -32768, 12345]);
  assert.deepEqual(decode(encode(samples)), samples);
  assert.equal(encode(Int16Array.from([1, 2])), 'AQACAA==');
  assert.deepEqual(decode(btoa('abc')).length, 1);
});

test('too loud is clipped, not wrapped', () => {
  assert.deepEqual([...toInt16([2, -2, 0.5])], [32767, -32767, 16384]);
});

test('the meter ends at silence and at full scale', () => {
  assert.equal(meterLevel(0), 0);
  assert.equal(meterLevel(1), 1);
  assert.ok(Math.abs(meterLevel(0.0316) - 0.5) < 0.01);
});

test('the last voiced instant is found over noise', () => {
  const trace = new VoiceTrace();
  for (let now = 0; now < 3000; now += 20) trace.hear(now >= 1000 && now < 2000 ? 0.05 : 0.004, now);
  assert.equal(trace.lastVoiced, 1980);
});
