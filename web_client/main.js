// The page: elements, buttons and keys. What it shows is in `client`; views redraw once a frame.

import { microphones } from './audio/microphone.js';
import { Client } from './client.js';
import { Fault } from './model/faults.js';
import { meterLevel } from './model/pcm.js';
import { cameras } from './video/camera.js';
import { CameraView } from './view/camera_view.js';
import { CaptionsView } from './view/captions_view.js';
import { eachFrame, find } from './view/dom.js';
import { LatencyView } from './view/latency_view.js';
import { LogView } from './view/log_view.js';
import { SettingsView } from './view/settings_view.js';
import { TimelineView } from './view/timeline_view.js';

const STATES = {
  idle: 'Not connected', connecting: 'Connecting…', retrying: 'Connection lost: connecting again…',
  listening: 'Listening', hearing: 'Hearing you', thinking: 'Thinking', speaking: 'Speaking', held: 'Paused: was that you?',
};
const HINTS = {
  idle: 'Press Connect and start to talk. Interrupt whenever you like.',
  connecting: 'Connecting. Your browser may ask for the microphone.',
  retrying: 'Connecting again.',
  open: 'Go ahead, say something.',
};

const ANIMATE_MS = 40;
let animatedAt = -Infinity;

const redraw = eachFrame(() => draw());
export const client = new Client(() => redraw(), find('#sink'));
const { conversation } = client;
const settings = new SettingsView(find('#settings'), (values, name) => {
  client.apply(values, name);
  redraw();
});
const captions = new CaptionsView(find('#captions'), find('#announcer'));
const latency = new LatencyView(find('#latency'), find('#latency-summary'));
const timeline = new TimelineView(find('#timeline'), find('#readout'), conversation.timeline, {
  pause: find('#timeline-pause'), zoomIn: find('#zoom-in'), zoomOut: find('#zoom-out'),
});
const log = new LogView({
  list: find('#log'), filter: find('#log-filter'), count: find('#log-count'), pause: find('#log-pause'),
  exportButton: find('#log-export'), clear: find('#log-clear'),
}, client.log);
const camera = new CameraView(client.camera, conversation.sight, choose);

// -- drawing

function draw() {
  const { phase, fault } = client;
  const open = phase === 'open';
  const state = open ? conversation.state : phase;
  const shown = find('#state');
  const muted = open && client.microphone.muted;
  const said = STATES[state] + (muted ? ', you are muted' : '');
  shown.dataset.state = state;
  shown.classList.toggle('muted', muted);
  if (shown.textContent !== said) shown.textContent = said;
  showFault(fault ?? (conversation.notice !== '' && open ? { message: 'The server says:', advice: conversation.notice, detail: '' } : null));
  find('#connect').textContent = phase === 'idle' ? 'Connect' : open ? 'Hang up' : 'Give up';
  find('#connect').classList.toggle('ends', phase !== 'idle');
  find('#mute').disabled = !open;
  find('#stop').disabled = !open || !['speaking', 'thinking', 'held'].includes(state);
  find('#answer').hidden = settings.settings.detection !== 'manual';
  find('#answer').disabled = !open;
  for (const element of find('#typed').elements) element.disabled = !open;
  find('#captions').hidden = conversation.captions.lines.length === 0;
  find('#hint').hidden = conversation.captions.lines.length > 0;
  find('#hint-text').textContent = HINTS[phase];
  camera.show();
  captions.draw(conversation.captions);
  latency.draw(conversation.turns);
}

function showFault(fault) {
  find('#fault').hidden = fault === null;
  find('#fault').classList.toggle('waits', client.phase === 'retrying');
  if (fault === null || find('#fault-title').textContent + find('#fault-advice').textContent === fault.message + fault.advice) return;
  find('#fault-title').textContent = fault.message;
  find('#fault-advice').textContent = fault.advice;
  find('#fault-detail').textContent = fault.detail;
  find('#fault-more').hidden = fault.detail === '';
}

/** What moves by itself: meters, timeline, log. 25 times a second is smooth enough and leaves the processor to the sound. */
function animate(now = 0) {
  requestAnimationFrame(animate);
  if (now - animatedAt < ANIMATE_MS) return;
  animatedAt = now;
  find('#microphone-level').value = meterLevel(client.levels.microphone);
  find('#voice-level').value = meterLevel(client.levels.voice);
  camera.draw(performance.now(), settings.settings);
  timeline.draw(client.phase !== 'idle');
  log.draw();
}

// -- what the user does

async function toggle() {
  if (client.phase === 'idle') {
    conversation.notice = '';
    await client.connect(settings.settings, settings.accessKey);
    await listDevices();
  } else {
    await client.hangUp();
  }
}

/** The camera's button, or that of the screen. */
async function choose(source) {
  const { state } = client.camera;
  if (state.source === source && (state.on || state.phase === 'asking')) return client.camera.turnOff();
  await client.camera.turnOn(source, settings.settings);
  return listDevices();
}

async function listDevices() {
  settings.microphones(await microphones());
  settings.cameras(await cameras());
}

function toggleMute() {
  const on = !client.microphone.muted;
  client.microphone.mute(on);
  find('#mute').setAttribute('aria-pressed', String(on));
  find('#mute').textContent = on ? 'Muted' : 'Mute';
  redraw();
}

find('#connect').addEventListener('click', toggle);
find('#mute').addEventListener('click', toggleMute);
find('#stop').addEventListener('click', () => client.stop());
find('#answer').addEventListener('click', () => client.answerNow());
find('#typed').addEventListener('submit', (event) => {
  event.preventDefault();
  const field = find('#typed-text');
  if (field.value.trim() !== '') client.say(field.value.trim());
  field.value = '';
});
addEventListener('keydown', (event) => {
  if (event.key === 'Escape') client.stop();
  if (event.altKey && event.code === 'KeyM' && client.phase === 'open') {
    event.preventDefault();
    toggleMute();
  }
  if (event.altKey && event.code === 'KeyC') {
    event.preventDefault();
    choose('camera');
  }
});
addEventListener('pagehide', () => client.hangUp());
navigator.mediaDevices?.addEventListener('devicechange', listDevices);

if (!window.isSecureContext) client.fault = new Fault('insecure', location.origin);
draw();
animate();
