// The camera's states, what the server saw, where its boxes go, and when a picture is sent.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { CameraState, constraintsOf, stateInWords, videoCodecs, videoOf } from '../../../web_client/model/camera_state.js';
import { Conversation } from '../../../web_client/model/conversation.js';
import { Fault, cameraFault } from '../../../web_client/model/faults.js';
import { FramePace } from '../../../web_client/model/frame_pace.js';
import { placed, sameShape, shownPart } from '../../../web_client/model/overlay.js';
import { toBase64 } from '../../../web_client/model/pcm.js';
import { DEFAULTS, restore, sessionOf } from '../../../web_client/model/settings.js';
import { Sight, ageInWords, counted } from '../../../web_client/model/sight.js';

const LIMITS = { max_fps: 2, max_frames: 8, max_bytes: 180000 };
const LOOKS = { extensions: { video: LIMITS } };
const seen = (objects, more = {}) => ({ objects, texts: null, colours: [], light: 'normal', width: 640, height: 480, ...more });
const thing = (kind, sure = true, box = [0.1, 0.2, 0.5, 0.9]) => ({ kind, place: 'left', sure, box });

/** A camera that is on since 0 and that the server looks at. */
function looking() {
  const camera = new CameraState();
  camera.ask('camera');
  camera.opened(0);
  camera.askServer();
  camera.granted(LOOKS);
  return camera;
}

test('nothing is sent before the camera is on, the server was asked and said that it looks', () => {
  const camera = new CameraState();
  const states = [];
  const step = (work) => {
    work();
    states.push([camera.state(0), camera.sends]);
  };
  step(() => {});
  step(() => camera.ask('camera'));
  step(() => camera.granted(LOOKS));
  step(() => camera.opened(0));
  step(() => camera.granted(LOOKS));
  step(() => camera.askServer());
  step(() => camera.granted({ extensions: { playback: {} } }));
  step(() => camera.granted({}));
  step(() => camera.granted(LOOKS));
  step(() => camera.off());
  assert.deepEqual(states, [
    ['off', false], ['asking', false], ['asking', false], ['alone', false], ['alone', false], ['asked', false], ['asked', false], ['asked', false],
    ['looked_at', true], ['off', false],
  ]);
});

test('each way of giving no picture has a name of its own, and ends when pictures come', () => {
  const camera = looking();
  assert.equal(camera.state(1900), 'looked_at');
  assert.equal(camera.state(2100), 'frozen');
  assert.equal(camera.state(2100, false, true), 'looked_at', 'a page that nobody sees is shown no pictures');
  camera.picture(2200);
  assert.equal(camera.state(2300), 'looked_at');
  assert.equal(camera.state(2300, true), 'dark');
  camera.mute(true);
  assert.equal(camera.state(2300, true), 'muted');
  camera.mute(false);
  camera.lost(new Fault('camera_lost'));
  assert.deepEqual([camera.state(2400), camera.sends, camera.source], ['lost', false, 'camera']);
  camera.ask('camera');
  assert.equal(camera.fault, null);
  camera.opened(3000);
  assert.equal(camera.state(3000), 'alone', 'the server has to be asked again');
});

test('a lost connection leaves the camera on, and the next server is asked anew', () => {
  const camera = looking();
  const [first, second] = [camera.asked, (camera.forgetServer(), camera.askServer())];
  assert.notEqual(`camera_${first}`, second);
  assert.deepEqual([camera.state(0), camera.limits], ['asked', null]);
  camera.granted(LOOKS);
  assert.deepEqual([camera.state(0), camera.limits], ['looked_at', LIMITS]);
});

test('an error is the camera’s only where it answers the question whether the server looks', () => {
  const camera = looking();
  const of = (error) => camera.refusal(error);
  assert.equal(of({ code: 'invalid_value', param: 'session.extensions.video' }), 'camera_blind');
  assert.equal(of({ code: 'unsupported_extension', param: null }), 'camera_blind');
  assert.equal(of({ code: 'invalid_value', param: 'session.extensions.video.max_fps', event_id: 'camera_1' }), 'rate');
  assert.equal(of({ code: 'invalid_value', param: 'session.extensions.video.report', event_id: 'camera_1' }), 'camera_refused');
  assert.equal(of({ code: 'server_error', param: null, event_id: 'camera_1' }), 'camera_refused');
  assert.equal(of({ code: 'invalid_value', param: 'session.instructions', event_id: null }), null);
  assert.equal(of({ code: 'server_error' }), null);
  camera.off();
  assert.equal(of({ code: 'invalid_value', param: 'session.extensions.video' }), null, 'nobody asked');
});

test('every state can be said, of the camera and of a screen', () => {
  for (const state of ['off', 'asking', 'lost', 'muted', 'frozen', 'dark', 'alone', 'asked', 'looked_at']) {
    assert.match(stateInWords(state, 'camera'), /^Camera: [a-z]/);
    assert.match(stateInWords(state, 'screen'), /^Screen: [a-z]/);
  }
});

test('faults of cameras and screens have their own words', () => {
  const kind = (name, source) => cameraFault({ name, message: '' }, source).kind;
  assert.equal(kind('NotAllowedError', 'camera'), 'camera_no_permission');
  assert.equal(kind('NotAllowedError', 'screen'), 'screen_cancelled');
  assert.equal(kind('NotFoundError', 'camera'), 'no_camera');
  assert.equal(kind('NotReadableError', 'camera'), 'camera_busy');
  assert.equal(kind('TypeError', 'camera'), 'internal');
  const own = new Fault('camera_insecure');
  assert.equal(cameraFault(own, 'camera'), own);
});

test('the camera’s settings are kept apart from the session’s, and become its extension', () => {
  const settings = restore({ cameraSize: '1280x720', cameraRate: 5, commentary: true, camera: 'abc', overlay: false });
  assert.deepEqual(sessionOf(settings), sessionOf(DEFAULTS));
  assert.deepEqual(videoOf(settings), { max_fps: 5, report: true, commentary: true });
  assert.deepEqual(videoOf(settings, false), { report: true, commentary: true });
  assert.equal(restore({ cameraSize: '4096x1', cameraRate: 60 }).cameraSize, '640x480');
  assert.equal(restore({ cameraRate: 60 }).cameraRate, 2);
  const wanted = constraintsOf(settings, 'camera');
  assert.deepEqual([wanted.width.ideal, wanted.height.ideal, wanted.deviceId.exact], [1280, 720, 'abc']);
  assert.equal('deviceId' in constraintsOf(DEFAULTS, 'camera'), false);
  assert.equal('deviceId' in constraintsOf(settings, 'screen'), false);
});

test('no more pictures are sent than the server looks at', () => {
  const camera = looking();
  assert.equal(camera.rate({ cameraRate: 5 }), 2);
  assert.equal(camera.rate({ cameraRate: 1 }), 1);
});

test('what a model sees by itself is not said to be nothing', () => {
  const sight = new Sight();
  sight.take({ reason: 'change', seen: seen([]) }, 0);
  assert.match(sight.words(0, false), /not known in words/);
  assert.equal(sight.news(0, false), null);
  const camera = looking();
  assert.ok(camera.inWords);
  camera.granted({ extensions: { video: { ...LIMITS, vision: { kind: 'model' } } } });
  assert.ok(!camera.inWords);
});

test('VP8 is offered, with its repair; a browser without it offers what it has', () => {
  const codecs = ['video/H264', 'video/rtx', 'video/VP8', 'video/AV1'].map((mimeType) => ({ mimeType }));
  assert.deepEqual(videoCodecs(codecs).map((codec) => codec.mimeType), ['video/VP8', 'video/rtx']);
  assert.deepEqual(videoCodecs([{ mimeType: 'video/H264' }]), [{ mimeType: 'video/H264' }]);
});

// -- what was seen

test('what was seen is placed on the input time line, ages, and is not replaced by what is older', () => {
  const c = new Conversation();
  c.inputStart = 1000;
  const say = (ms, what, reason = 'change', now = 9000) =>
    c.handle({ type: 'input_image_buffer.seen', timestamp_ms: ms, reason, seen: seen([thing(what)]) }, now);
  say(4000, 'cat');
  assert.equal(c.sight.age(8000), 3000);
  say(3000, 'dog', 'forced');
  assert.match(c.sight.words(8000), /cat/);
  say(9500, 'cup', 'heartbeat');
  assert.equal(c.sight.age(9000), 0, 'never seen before it was there');
  assert.deepEqual([c.sight.counts, c.sight.looks], [{ change: 1, heartbeat: 1, forced: 1 }, 3]);
  c.handle({ type: 'input_image_buffer.cleared' }, 9100);
  assert.deepEqual([c.sight.words(9100), c.sight.age(9100), c.sight.looks], ['', null, 0]);
});

test('the end of a connection forgets what was seen', () => {
  const c = new Conversation();
  c.handle({ type: 'input_image_buffer.seen', timestamp_ms: 0, reason: 'change', seen: seen([thing('cat')]) }, 10);
  c.ended(20);
  assert.equal(c.sight.newest, null);
});

test('sure, unsure, text, light and colours are told apart in words', () => {
  const sight = new Sight();
  const objects = [thing('person'), thing('person'), thing('dog'), thing('tie', false), thing('dog', false)];
  sight.take({ reason: 'change', seen: seen(objects, { texts: ['EXIT'], light: 'dim', colours: ['red', 'blue'] }) }, 0);
  assert.equal(sight.words(100), 'Seen: 2 × person, dog. Not sure: tie. Text read: “EXIT”. Light: dim. Colours: red, blue.');
  sight.take({ reason: 'heartbeat', seen: seen([]) }, 5000);
  assert.equal(sight.words(5000), 'Seen: none of the things that it knows. Text read: “EXIT” (5 s before).', 'text is read less often');
  assert.equal(sight.words(16100), 'Seen: none of the things that it knows.');
  sight.take({ reason: 'change', seen: seen([thing('cat')], { light: 'dark' }) }, 17000);
  assert.ok(sight.dark && sight.words(17000).includes('covered') && !sight.words(17000).includes('cat'));
});

test('boxes fade with their age and are gone in the end; a dark picture has none', () => {
  const sight = new Sight();
  assert.deepEqual(sight.overlay(0), { objects: [], strength: 0 });
  sight.take({ reason: 'change', seen: seen([thing('cat')]) }, 0);
  const strengths = [0, 1000, 5000, 13000].map((now) => sight.overlay(now).strength);
  assert.ok(strengths[0] === 1 && strengths[1] === 1 && strengths[2] < 1 && strengths[2] > 0 && strengths[3] === 0);
  assert.equal(sight.overlay(13000).objects.length, 0);
  sight.take({ reason: 'change', seen: seen([thing('cat')], { light: 'dark' }) }, 14000);
  assert.equal(sight.overlay(14000).objects.length, 0);
});

test('odd reports of the server do no harm, and many objects are bounded', () => {
  const sight = new Sight();
  sight.take({ reason: 'change', seen: null }, 0);
  assert.equal(sight.newest, null);
  sight.take({ reason: 'new', seen: { objects: [{ kind: 'cat' }, thing('dog')] } }, 0);
  assert.equal(sight.words(0), 'Seen: dog.');
  sight.take({ reason: 'change', seen: seen(Array(500).fill(thing('cup'))) }, 1);
  assert.equal(sight.newest.objects.length, 50);
});

test('a screen reader hears what is news, not too often, and nothing twice', () => {
  const sight = new Sight();
  assert.equal(sight.news(0), null);
  const take = (kinds, at, more) => sight.take({ reason: 'change', seen: seen(kinds.map((kind) => thing(kind)), more) }, at);
  take(['cat'], 0);
  assert.equal(sight.news(10), 'The agent sees: cat');
  take(['cat', 'dog'], 1000);
  assert.equal(sight.news(1000), null, 'too soon');
  assert.equal(sight.news(9000), 'The agent sees: cat, dog');
  take(['cat', 'dog'], 20000);
  assert.equal(sight.news(20000), null, 'nothing new');
  take(['cat', 'dog'], 21000, { texts: ['EXIT'] });
  assert.equal(sight.news(21000), 'The agent sees: cat, dog, text “EXIT”');
  take(['tie'], 31000, { light: 'dark' });
  assert.match(sight.news(31000), /dark or covered/);
});

test('kinds and ages in words', () => {
  assert.deepEqual(counted(['cat', 'dog', 'cat']), ['2 × cat', 'dog']);
  assert.deepEqual([ageInWords(200), ageInWords(1400), ageInWords(12600)], ['now', '1 s ago', '13 s ago']);
});

// -- boxes on the preview

test('boxes lie on the picture, not on its black bars', () => {
  assert.deepEqual(shownPart(800, 300, 640, 480), [200, 0, 400, 300]);
  assert.deepEqual(shownPart(300, 400, 0, 0), [0, 0, 300, 400]);
  const [one] = placed([thing('cat', true, [0.5, 0.5, 1, 1])], [200, 0, 400, 300], () => 30);
  assert.deepEqual([one.x, one.y, one.w, one.h], [400, 150, 200, 150]);
});

test('labels stay in the picture, say what is unsure, and do not lie on each other', () => {
  const part = [0, 0, 400, 300];
  const whole = [0, 0, 1, 1];
  const found = placed([thing('cat', true, whole), thing('cat', false, whole), thing('umbrella', true, [0.95, 0.97, 1.4, 1.2])], part, (text) => 8 * text.length);
  assert.deepEqual(found.map((one) => one.text), ['cat', 'cat?', 'umbrella']);
  for (const { label: [x, y, w, h] } of found) assert.ok(x >= 0 && y >= 0 && x + w <= 400 && y + h <= 300);
  const [a, b] = found.map((one) => one.label);
  assert.ok(Math.abs(a[1] - b[1]) >= 18);
  assert.ok(found[2].w <= 20.1, 'a box ends with the picture');
});

test('boxes of a picture of another shape are not drawn on this one', () => {
  assert.ok(sameShape(1280, 720, 640, 360));
  assert.ok(!sameShape(640, 480, 640, 360) && !sameShape(480, 640, 640, 480) && !sameShape(0, 0, 640, 480));
});

// -- when a picture is sent

test('pictures go at the rate, one at a time, and a frozen camera sends none', () => {
  const pace = new FramePace(2, 180000);
  const sent = [];
  for (let now = 0; now < 5000; now += 50) {
    const fresh = now < 3000;
    if (!pace.due(now, fresh, 0)) continue;
    assert.ok(!pace.due(now, true, 0), 'one at a time');
    assert.ok(pace.made(20000));
    sent.push(now);
  }
  assert.deepEqual(sent, [0, 500, 1000, 1500, 2000, 2500]);
  assert.equal(pace.counts.sent, 6);
});

test('nothing is sent while the network has not taken what was sent', () => {
  const pace = new FramePace(10, 180000);
  assert.ok(!pace.due(0, true, 500000));
  assert.equal(pace.counts.waiting, 1);
  assert.ok(pace.due(20, true, 1000));
});

test('what is too large is left out, and the next ones are made smaller until they fit', () => {
  const pace = new FramePace(10, 50000, 60000);
  assert.ok(pace.maxBytes < 45000, 'base64 has to fit into a message');
  assert.deepEqual(pace.size(1280, 720), [640, 360]);
  assert.deepEqual(pace.size(320, 240), [320, 240]);
  for (let k = 0; k < 9; k++) {
    assert.ok(pace.due(k * 1000, true, 0));
    assert.ok(!pace.made(60000));
  }
  assert.deepEqual(pace.size(1280, 720), [160, 90]);
  const { quality } = pace;
  for (let k = 10; k < 200; k++) {
    pace.due(k * 1000, true, 0);
    assert.ok(pace.made(5000));
  }
  assert.deepEqual([pace.size(1280, 720), pace.counts.too_large], [[640, 360], 9]);
  assert.ok(pace.quality > quality);
  pace.due(300000, true, 0);
  assert.ok(!pace.made(0), 'a picture that could not be made');
  assert.ok(pace.due(301000, true, 0), 'does not stop the next');
});

test('bytes of a picture are spelled in base64', () => {
  assert.equal(toBase64(new Uint8Array([0, 255, 16, 3])), btoa('\x00\xff\x10\x03'));
});
