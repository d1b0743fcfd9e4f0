// A session over one WebSocket: microphone samples go out, audio deltas go into the playback ring, and the server is told
// to the sample what was played.

import { latencyMs, rest, runningContext } from '../audio/context.js';
import { Fault, closeFault, httpFault } from '../model/faults.js';
import { decode, encode } from '../model/pcm.js';
import { PlaybackReports, keyOf } from '../model/playback_reports.js';

const RATE = 24000;
const OPEN_MS = 8000;
const NORMAL = 1000;
const SILENCE = { playing: null, ended: [], held: false };
const ASK_MS = 3000; // a socket does not say that nothing gets through any more: ask the server by HTTP
const ANSWER_MS = 8000;

export class WebSocketConnection {
  /** `events`: onEvent(event), onSent(event), onClosed(fault or null), onHeard(responseId, at), onGap(responseId, ms), onVoice(rms). */
  constructor(events, microphone) {
    this.events = events;
    this.microphone = microphone;
    this.reports = new PlaybackReports(RATE);
    this.socket = null;
    this.context = null;
    this.over = false;
    this.samples = 0; // of the microphone, sent
  }

  /** What takes time and needs no microphone. */
  async prepare() {
    this.context = await runningContext(['playback_worklet.js', 'meter_worklet.js'], { sampleRate: RATE });
    if (this.over) return void (await rest(this.context, []));
    this.ring = new AudioWorkletNode(this.context, 'playback', { numberOfInputs: 0, outputChannelCount: [1] });
    this.ring.port.onmessage = ({ data }) => this.played(data);
    this.meter = new AudioWorkletNode(this.context, 'meter');
    this.meter.port.onmessage = ({ data }) => this.events.onVoice(data.level);
    this.ring.connect(this.meter).connect(this.context.destination);
    return undefined;
  }

  /** Returns when the first sample of the microphone counts, by the page's clock. */
  async open({ key }) {
    await this.dial(key);
    this.microphone.onPcm = (pcm) => {
      this.samples += pcm.length;
      this.send({ type: 'input_audio_buffer.append', audio: encode(pcm) });
    };
    this.microphone.send(true);
    this.asking = setInterval(() => this.ask(), ASK_MS);
    return performance.now();
  }

  async dial(key) {
    if (this.over) throw new Fault('lost');
    const url = new URL('/v1/realtime?extensions=playback', location.href);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    const protocols = key === '' ? ['realtime'] : ['realtime', `openai-insecure-api-key.${key}`];
    this.socket = new WebSocket(url, protocols);
    const opened = await new Promise((done) => {
      this.socket.onopen = () => done(true);
      this.socket.onclose = () => done(false);
      setTimeout(() => done(false), OPEN_MS);
    });
    if (!opened) {
      this.socket.close();
      throw await whyRefused(key);
    }
    this.socket.onmessage = ({ data }) => this.take(JSON.parse(data));
    this.socket.onclose = ({ code, reason }) => this.finish(code === NORMAL ? null : closeFault(code, reason));
  }

  /** Notice a server that went away without a word. */
  async ask() {
    try {
      await fetch('/healthz', { cache: 'no-store', signal: AbortSignal.timeout(ANSWER_MS) });
    } catch {
      this.finish(closeFault(0, 'nothing comes from the server any more'));
    }
  }

  take(event) {
    if (event.type === 'response.output_audio.delta') {
      const samples = decode(event.delta);
      this.order({ op: 'push', key: keyOf(event.response_id, event.item_id, event.content_index), samples }, [samples.buffer]);
    } else if (event.type === 'response.output_audio.done') {
      this.order({ op: 'complete', key: keyOf(event.response_id, event.item_id, event.content_index) });
    } else if (event.type === 'playback.mute') {
      this.order(event.reversible ? { op: 'hold' } : { op: 'cut', response: event.response_id });
    } else if (event.type === 'playback.play') {
      this.order({ op: 'release' });
    } else if (event.type === 'output_audio_buffer.cleared') {
      this.order({ op: 'cut', response: event.response_id });
    }
    this.events.onEvent(event);
  }

  order(message, transfer = []) {
    this.ring.port.postMessage(message, transfer);
  }

  played(report) {
    if (this.over) return;
    const now = performance.now();
    const news = this.reports.take(report, latencyMs(this.context), now);
    for (const ack of news.acks) this.send(ack);
    for (const { responseId, at } of news.begun) this.events.onHeard(responseId, at ?? now);
    for (const { responseId, ms } of news.gaps) this.events.onGap(responseId, ms);
    clearTimeout(this.heardOut);
    const { due } = this.reports; // the ring reports no more once it is empty
    if (due !== null) this.heardOut = setTimeout(() => this.played(SILENCE), Math.max(0, due - now));
  }

  send(event) {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    this.socket.send(JSON.stringify(event));
    this.events.onSent(event);
  }

  /** The microphone's stream changed: the capture worklet has it already. */
  async changeMicrophone() {}

  // -- the camera: its pictures go as events

  get takesVideo() {
    return false;
  }

  get waitingBytes() {
    return this.socket?.bufferedAmount ?? 0;
  }

  get maxMessage() {
    return Infinity;
  }

  /** Where the next sample of the microphone is on the server's input time line, in milliseconds. */
  get inputMs() {
    return Math.round((this.samples * 1000) / RATE);
  }

  async close() {
    this.socket?.close(NORMAL);
    this.finish(null);
  }

  finish(fault) {
    if (this.over) return;
    this.over = true;
    clearInterval(this.asking);
    clearTimeout(this.heardOut);
    this.socket?.close();
    this.microphone.onPcm = null;
    this.microphone.send(false);
    rest(this.context, [this.ring, this.meter]);
    this.events.onClosed(fault);
  }
}

/** A browser does not say why a WebSocket was refused: ask by HTTP. */
async function whyRefused(key) {
  try {
    const headers = key === '' ? {} : { Authorization: `Bearer ${key}` };
    const models = await fetch('/v1/models', { headers });
    if (!models.ok) return httpFault(models.status, await models.text());
    const ready = await fetch('/readyz');
    if (ready.ok) return new Fault('full'); // key and server are fine: what is left is admission
    const { reasons = [] } = await ready.json();
    return new Fault('not_ready', reasons.join('; '));
  } catch {
    return new Fault('unreachable');
  }
}
