// The camera's part of the page: buttons, preview, and over it what the server saw, in boxes and in words.

import { stateInWords } from '../model/camera_state.js';
import { placed, sameShape, shownPart } from '../model/overlay.js';
import { ageInWords } from '../model/sight.js';
import { canShare } from '../video/camera.js';
import { find } from './dom.js';

const COLOURS = ['sure', 'unsure', 'on-sure', 'on-unsure'];

export class CameraView {
  /** `feed`: a CameraFeed; `sight`: what was seen; `choose(source)`: the user pressed a button. */
  constructor(feed, sight, choose) {
    this.feed = feed;
    this.sight = sight;
    this.drawn = '';
    feed.camera.video.id = 'preview';
    feed.camera.video.setAttribute('aria-label', 'What your camera shows');
    find('#picture').prepend(feed.camera.video);
    this.canvas = find('#overlay');
    find('#camera').addEventListener('click', () => choose('camera'));
    find('#screen').addEventListener('click', () => choose('screen'));
    find('#screen').hidden = !canShare();
    this.theme = matchMedia('(prefers-color-scheme: dark)');
    this.theme.addEventListener('change', () => this.readColours());
    this.readColours();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    this.colours = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--cam-${name}`).trim()]));
    this.drawn = '';
  }

  /** After every change of the camera's state. */
  show() {
    const { state } = this.feed;
    const { phase, source, fault } = state;
    for (const [id, own, label, off] of [['#camera', 'camera', 'Camera', 'Camera off'], ['#screen', 'screen', 'Share screen', 'Stop sharing']]) {
      const pressed = source === own && (phase === 'on' || phase === 'asking');
      find(id).setAttribute('aria-pressed', String(pressed));
      find(id).textContent = pressed ? off : phase === 'lost' && source === own ? `${label} again` : label;
    }
    find('#picture').hidden = phase !== 'on';
    find('#seen').hidden = phase !== 'on';
    find('#camera-fault').hidden = fault === null;
    if (fault !== null && find('#camera-fault-title').textContent !== fault.message) {
      find('#camera-fault-title').textContent = fault.message;
      find('#camera-fault-advice').textContent = fault.advice;
      find('#camera-fault-detail').textContent = fault.detail;
      find('#camera-fault-more').hidden = fault.detail === '';
    } else if (fault === null) {
      find('#camera-fault-title').textContent = '';
    }
    if (phase !== 'off' || fault !== null) find('#camera-panel').open ||= this.phase !== phase;
    this.phase = phase;
  }

  /** What moves by itself: state, age, boxes. */
  draw(now, { overlay }) {
    const { state } = this.feed;
    const words = stateInWords(state.state(now, this.sight.dark, document.hidden), state.source);
    say('#camera-state', words);
    if (!state.on) return;
    const seen = this.sight.words(now, state.inWords);
    say('#seen-words', seen === '' && state.sends ? 'Nothing was looked at yet.' : seen);
    say('#seen-age', this.age(now));
    const news = this.sight.news(now, state.inWords);
    if (news !== null) find('#camera-announcer').textContent = news;
    this.boxes(overlay ? this.sight.overlay(now) : { objects: [], strength: 0 });
  }

  age(now) {
    const age = this.sight.age(now);
    if (age === null) return '';
    const { change, heartbeat, forced } = this.sight.counts;
    const text = this.sight.read(now);
    const read = text === null ? 'text not read' : `text read ${ageInWords(now - text.at)}`;
    return `Newest picture looked at: ${ageInWords(age)}; ${read}. Looked at so far: ${this.sight.looks} (${change} changed, ${heartbeat} after a while, ${forced} for a question).`;
  }

  boxes({ objects, strength }) {
    const { canvas } = this;
    const { video } = this.feed.camera;
    const [width, height] = [video.clientWidth, video.clientHeight];
    const key = `${this.sight.version} ${strength} ${objects.length} ${width}x${height} ${video.videoWidth}x${video.videoHeight} ${devicePixelRatio}`;
    if (key === this.drawn) return;
    this.drawn = key;
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const { newest } = this.sight;
    if (objects.length === 0 || !sameShape(video.videoWidth, video.videoHeight, newest.width, newest.height)) return;
    const pen = canvas.getContext('2d');
    pen.scale(ratio, ratio);
    pen.font = '12px system-ui, sans-serif';
    pen.globalAlpha = strength;
    const part = shownPart(width, height, video.videoWidth, video.videoHeight);
    for (const one of placed(objects, part, (text) => pen.measureText(text).width)) this.box(pen, one);
  }

  box(pen, { x, y, w, h, sure, text, label }) {
    pen.strokeStyle = this.colours[sure ? 'sure' : 'unsure'];
    pen.lineWidth = 2;
    pen.setLineDash(sure ? [] : [6, 4]);
    pen.strokeRect(x + 1, y + 1, Math.max(0, w - 2), Math.max(0, h - 2));
    pen.fillStyle = pen.strokeStyle;
    pen.fillRect(...label);
    pen.fillStyle = this.colours[sure ? 'on-sure' : 'on-unsure'];
    pen.fillText(text, label[0] + 4, label[1] + 13, label[2] - 6);
  }
}

function say(selector, words) {
  const element = find(selector);
  if (element.textContent !== words) element.textContent = words;
}
