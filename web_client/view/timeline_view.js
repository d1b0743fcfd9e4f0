// The timeline on a canvas: it scrolls with the clock, and can be stopped, moved, zoomed and inspected.
//
// Lanes from the top: your speech, thinking, the answer as it sounds (gaps and pauses in it), and how far generated and sent
// audio are ahead of your ear. Colours come from the style sheet.

import { describe } from '../model/timeline.js';

const LANES = { user: 0, think: 1, reply: 2, gap: 2, duck: 2 };
const LABELS = ['you', 'thinking', 'answer', 'ahead of your ear'];
const LANE_SHARE = [0.17, 0.17, 0.17, 0.36];
const TOP = 16;
const AHEAD_MS = 2200;
const SPANS_MS = [5000, 10000, 20000, 60000, 180000];
const COLOURS = ['user', 'think', 'reply', 'gap', 'duck', 'sent', 'generated', 'barge', 'text', 'muted', 'grid', 'error', 'back'];

export class TimelineView {
  constructor(canvas, readout, timeline, controls) {
    this.canvas = canvas;
    this.readout = readout;
    this.timeline = timeline;
    this.controls = controls;
    this.origin = performance.now();
    this.zoom = 2;
    this.pausedAt = null; // the right edge while it stands still
    this.stoodAt = null; // the right edge while nothing is connected
    this.cursor = null; // an instant
    this.dirty = true;
    this.theme = matchMedia('(prefers-color-scheme: dark)');
    this.theme.addEventListener('change', () => this.readColours());
    new ResizeObserver(() => this.fit()).observe(canvas);
    this.listen();
    this.readColours();
  }

  get width() {
    return SPANS_MS[this.zoom];
  }

  get right() {
    return this.pausedAt ?? this.stoodAt ?? performance.now();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    this.colours = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--tl-${name}`).trim()]));
    this.dirty = true;
  }

  fit() {
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(this.canvas.clientWidth * ratio);
    this.canvas.height = Math.round(this.canvas.clientHeight * ratio);
    this.dirty = true;
  }

  // -- input

  listen() {
    const { canvas } = this;
    let dragged = null;
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      dragged = { x: event.offsetX, right: this.right, moved: false };
    });
    canvas.addEventListener('pointermove', (event) => {
      if (dragged !== null && Math.abs(event.offsetX - dragged.x) > 4) {
        dragged.moved = true;
        this.stopAt(dragged.right - ((event.offsetX - dragged.x) / canvas.clientWidth) * this.width);
      }
      this.point(this.instantAt(event.offsetX));
    });
    canvas.addEventListener('pointerup', (event) => {
      if (dragged !== null && !dragged.moved) this.point(this.instantAt(event.offsetX));
      dragged = null;
    });
    canvas.addEventListener('pointerleave', () => this.pausedAt === null && this.point(null));
    canvas.addEventListener('keydown', (event) => this.onKey(event));
    this.controls.pause.addEventListener('click', () => this.togglePause());
    this.controls.zoomIn.addEventListener('click', () => this.zoomBy(-1));
    this.controls.zoomOut.addEventListener('click', () => this.zoomBy(1));
  }

  onKey(event) {
    const step = this.width / 50;
    const move = { ArrowLeft: -step, ArrowRight: step, PageUp: -this.width / 2, PageDown: this.width / 2 }[event.key];
    if (move !== undefined) {
      const cursor = (this.cursor ?? this.right) + move;
      const start = this.right - this.width;
      this.stopAt(cursor > this.right ? cursor : cursor < start ? cursor + this.width : this.right);
      this.point(cursor);
    } else if (event.key === ' ') this.togglePause();
    else if (event.key === 'Home') this.stopAt(this.origin + this.width);
    else if (event.key === 'End') this.resume();
    else if (event.key === '+') this.zoomBy(-1);
    else if (event.key === '-') this.zoomBy(1);
    else return;
    event.preventDefault();
  }

  instantAt(x) {
    return this.right - this.width * (1 - x / this.canvas.clientWidth);
  }

  togglePause() {
    if (this.pausedAt === null) this.stopAt(performance.now());
    else this.resume();
  }

  stopAt(right) {
    this.pausedAt = Math.min(right, performance.now());
    this.show();
  }

  resume() {
    this.pausedAt = null;
    this.point(null);
    this.show();
  }

  show() {
    const paused = this.pausedAt !== null;
    this.controls.pause.textContent = paused ? 'Go on' : 'Pause';
    this.controls.pause.setAttribute('aria-pressed', String(paused));
    this.dirty = true;
  }

  zoomBy(steps) {
    this.zoom = Math.max(0, Math.min(SPANS_MS.length - 1, this.zoom + steps));
    this.dirty = true;
  }

  point(instant) {
    this.cursor = instant;
    this.dirty = true;
    this.readout.textContent = instant === null ? '' : describe(this.timeline.inspect(instant, this.width / 80), this.origin);
  }

  // -- drawing

  /** Draw the present; does nothing while nothing can have changed. */
  draw(live) {
    if (live) this.stoodAt = null;
    else this.stoodAt ??= performance.now();
    if (!this.dirty && (this.pausedAt !== null || !live)) return;
    this.dirty = false;
    const ratio = devicePixelRatio || 1;
    const pen = this.canvas.getContext('2d');
    const [w, h] = [this.canvas.width / ratio, this.canvas.height / ratio];
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, w, h);
    pen.font = '11px system-ui, sans-serif';
    const to = this.right;
    const from = to - this.width;
    const scale = { x: (at) => ((at - from) / this.width) * w, w, h, lanes: lanes(h) };
    const found = this.timeline.between(from, to);
    this.grid(pen, scale, from, to);
    this.ahead(pen, scale, found.samples);
    for (const span of found.spans) this.span(pen, scale, span);
    for (const mark of found.marks) this.mark(pen, scale, mark);
    this.labels(pen, scale);
    if (this.cursor !== null) this.line(pen, scale, this.cursor, this.colours.text, []);
  }

  grid(pen, scale, from, to) {
    const step = [500, 1000, 2000, 10000, 30000][this.zoom];
    pen.fillStyle = this.colours.muted;
    pen.strokeStyle = this.colours.grid;
    pen.lineWidth = 1;
    for (let k = Math.ceil((from - this.origin) / step); this.origin + k * step <= to; k++) {
      const x = scale.x(this.origin + k * step);
      pen.beginPath();
      pen.moveTo(x, TOP);
      pen.lineTo(x, scale.h);
      pen.stroke();
      if (k >= 0) pen.fillText(`${(k * step) / 1000} s`, x + 3, 11);
    }
  }

  span(pen, scale, { lane, from, to }) {
    const [y, height] = scale.lanes[LANES[lane]];
    const x = scale.x(from);
    const width = Math.max(2, scale.x(to ?? this.right) - x);
    pen.fillStyle = this.colours[lane];
    if (lane === 'gap' || lane === 'duck') pen.fillRect(x, y, width, height);
    else {
      pen.beginPath();
      pen.roundRect(x, y + 3, width, height - 6, 4);
      pen.fill();
    }
  }

  mark(pen, scale, { kind, at, text }) {
    if (kind === 'latency') {
      const [y, height] = scale.lanes[1];
      const short = text.replace('answer after ', '');
      this.words(pen, short, scale.x(at) - pen.measureText(short).width - 6, y + height / 2 + 4, this.colours.text);
      return;
    }
    const colour = kind === 'barge_in' ? this.colours.barge : kind === 'error' ? this.colours.error : this.colours.muted;
    this.line(pen, scale, at, colour, kind === 'connection' ? [3, 3] : []);
    if (kind === 'barge_in') {
      pen.fillStyle = colour;
      pen.fillText('✂', scale.x(at) + 2, scale.lanes[0][0] + 11);
    }
  }

  /** Audio that is generated (pale) and sent (darker) and not yet played, over time. */
  ahead(pen, scale, samples) {
    const [y, height] = scale.lanes[3];
    const up = (ms) => y + height - (Math.min(AHEAD_MS, Math.max(0, ms)) / AHEAD_MS) * height;
    for (const [name, lead] of [['generated', (s) => s.generated - s.played], ['sent', (s) => s.sent - s.played]]) {
      pen.fillStyle = this.colours[name];
      for (let k = 0; k < samples.length; k++) {
        const next = samples[k + 1];
        const x = Math.floor(scale.x(samples[k].at));
        const end = next !== undefined && next.id === samples[k].id ? Math.min(scale.x(next.at), scale.x(samples[k].at + 400)) : scale.x(samples[k].at + 60);
        pen.fillRect(x, up(lead(samples[k])), Math.max(1, Math.floor(end) - x), y + height - up(lead(samples[k])));
      }
    }
    pen.fillStyle = this.colours.muted;
    pen.textAlign = 'right';
    pen.fillText(`${AHEAD_MS / 1000} s`, scale.w - 2, y + 10);
    pen.textAlign = 'left';
  }

  labels(pen, scale) {
    LABELS.forEach((label, k) => this.words(pen, label, 4, scale.lanes[k][0] + 11, this.colours.muted));
  }

  /** Text that can be read on any colour. */
  words(pen, text, x, y, colour) {
    pen.globalAlpha = 0.75;
    pen.fillStyle = this.colours.back;
    pen.fillRect(x - 3, y - 11, pen.measureText(text).width + 6, 15);
    pen.globalAlpha = 1;
    pen.fillStyle = colour;
    pen.fillText(text, x, y);
  }

  line(pen, scale, at, colour, dash) {
    const x = scale.x(at);
    pen.strokeStyle = colour;
    pen.lineWidth = 1.5;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(x, TOP);
    pen.lineTo(x, scale.h);
    pen.stroke();
    pen.setLineDash([]);
  }
}

/** Top and height of each lane. */
function lanes(height) {
  const room = height - TOP;
  const gap = (room * (1 - LANE_SHARE.reduce((a, b) => a + b))) / LANE_SHARE.length;
  let y = TOP + gap / 2;
  return LANE_SHARE.map((share) => {
    const lane = [y, share * room];
    y += share * room + gap;
    return lane;
  });
}
