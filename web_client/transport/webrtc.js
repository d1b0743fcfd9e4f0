// A session over WebRTC: sound both ways over RTP, events over a data channel.
//
// The answer's sound goes through a gain that obeys the server's mute by generation (MuteGate). The server is told the RTP
// timestamp of what is being played, and what the sound card adds.

import { latencyMs, pageTime, rest, runningContext } from '../audio/context.js';
import { Fault, closeFault, httpFault } from '../model/faults.js';
import { videoCodecs } from '../model/camera_state.js';
import { MuteGate, reached } from '../model/mute_gate.js';
import { iceServers } from './ice_servers.js';

const GATHER_MS = 2000;
const CONNECT_MS = 12000;
const ACK_MS = 100;
const STATS_MS = 1000;
const PATIENCE_MS = 4000; // "disconnected" may heal
const RTP_AHEAD_MS = 30; // getSynchronizationSources reads 20 to 40 ms ahead of the ear (Chromium, measured)
const LEAST_GAP_MS = 20;
const SILENT_MS = 6000; // the server's RTP never stops: without any, it is gone, long before ICE says so

export class WebRtcConnection {
  /** `events`: as of WebSocketConnection, and partOf(responseId) -> { itemId, contentIndex } or null; `sink`: an audio element. */
  constructor(events, microphone, sink) {
    this.events = events;
    this.microphone = microphone;
    this.sink = sink;
    this.gate = new MuteGate();
    this.current = null; // { id, from: RTP timestamp or null, heard }
    this.lastAck = 0;
    this.concealed = 0;
    this.packets = { count: -1, at: 0 };
    this.over = false;
  }

  /** What takes time and needs no microphone. */
  async prepare(key) {
    if (typeof RTCPeerConnection === 'undefined') throw new Fault('unsupported', 'WebRTC');
    const [context, servers] = await Promise.allSettled([runningContext(['meter_worklet.js']), iceServers(key)]);
    this.context = context.value;
    if (this.over) await rest(this.context, []);
    const failed = [context, servers].find(({ status }) => status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    this.servers = servers.value;
  }

  /** Returns when the first sample of the microphone counts, by the page's clock. */
  async open({ key, session }) {
    if (this.over) throw new Fault('lost');
    this.peer = new RTCPeerConnection({ iceServers: this.servers });
    this.channel = this.peer.createDataChannel('oai-events');
    this.channel.onmessage = ({ data }) => this.take(JSON.parse(data));
    this.sender = this.peer.addTransceiver(this.microphone.track, {
      direction: 'sendrecv', streams: [this.microphone.stream],
    }).sender;
    this.offerVideo();
    this.peer.ontrack = (event) => this.listen(event);
    try {
      await this.call(key, { ...session, extensions: { playback: {} } });
    } catch (error) {
      this.free();
      throw error;
    }
    this.channel.onclose = () => this.finish(closeFault(0, 'the server closed the call'));
    this.peer.onconnectionstatechange = () => this.watch();
    this.stats = setInterval(() => this.readStats(), STATS_MS);
    return performance.now();
  }

  /** The server never renegotiates: the way for a camera is there from the start, and empty. */
  offerVideo() {
    this.video = this.peer.addTransceiver('video', { direction: 'sendonly' });
    const known = RTCRtpSender.getCapabilities?.('video')?.codecs ?? [];
    if (known.length > 0) this.video.setCodecPreferences?.(videoCodecs(known));
  }

  async call(key, session) {
    const form = new FormData();
    form.set('session', JSON.stringify(session));
    await this.peer.setLocalDescription();
    await this.until(() => this.peer.iceGatheringState === 'complete', 'icegatheringstatechange', this.peer, GATHER_MS);
    form.set('sdp', this.peer.localDescription.sdp);
    const headers = key === '' ? {} : { Authorization: `Bearer ${key}` };
    let response;
    try {
      response = await fetch('/v1/realtime/calls', { method: 'POST', headers, body: form, signal: AbortSignal.timeout(CONNECT_MS) });
    } catch (error) {
      throw new Fault('unreachable', error.message);
    }
    const text = await response.text();
    if (!response.ok) throw httpFault(response.status, text);
    await this.peer.setRemoteDescription({ type: 'answer', sdp: text });
    const open = await this.until(() => this.over || this.channel.readyState === 'open', 'open', this.channel, CONNECT_MS);
    if (!open || this.over) throw new Fault('no_media', `ICE is ${this.peer.iceConnectionState}`);
  }

  /** Wait for a condition that an event announces; false: it took too long. */
  until(condition, name, target, ms) {
    return new Promise((done) => {
      const end = () => {
        clearTimeout(timer);
        target.removeEventListener(name, look);
        done(condition());
      };
      const look = () => condition() && end();
      const timer = setTimeout(end, ms);
      target.addEventListener(name, look);
      look();
    });
  }

  listen({ track, receiver }) {
    if (track.kind !== 'audio') return;
    const stream = new MediaStream([track]);
    this.receiver = receiver;
    this.sink.srcObject = stream; // Chromium feeds WebAudio only what an element has too
    this.sink.muted = true;
    this.sink.play().catch(() => {}); // a muted element needs no permission; without it WebAudio still works elsewhere
    this.gain = this.context.createGain();
    this.meter = new AudioWorkletNode(this.context, 'meter');
    this.meter.port.onmessage = ({ data }) => this.tick(data);
    this.source = this.context.createMediaStreamSource(stream);
    this.source.connect(this.gain).connect(this.meter).connect(this.context.destination);
    this.setGain();
  }

  take(event) {
    if (event.type === 'playback.mute') {
      if (this.gate.open) this.report(!event.reversible);
      this.gate.mute(event.epoch);
      this.setGain();
      if (!event.reversible) this.current = null;
    } else if (event.type === 'playback.play') {
      this.gate.play(event.epoch, event.rtp_timestamp);
      this.setGain();
      if (this.current?.id !== event.response_id) {
        this.current = { id: event.response_id, from: event.rtp_timestamp ?? null, heard: false };
      }
    } else if (event.type === 'output_audio_buffer.cleared' || event.type === 'output_audio_buffer.stopped') {
      if (this.current?.id === event.response_id) this.current = null;
    }
    this.events.onEvent(event);
  }

  /** Each 10 ms of sound, which no throttling of timers delays. */
  tick({ level, lastLoud }) {
    this.events.onVoice(level);
    const playing = this.receiver.getSynchronizationSources()[0];
    if (this.over || playing === undefined) return;
    if (this.gate.poll(playing.rtpTimestamp)) this.setGain();
    if (this.current === null) return;
    const { id, from, heard } = this.current;
    const begun = from === null || reached(playing.rtpTimestamp, from);
    const sounds = this.context.currentTime - lastLoud < 0.05;
    if (!heard && begun && this.gate.open && sounds) {
      this.current.heard = true;
      this.events.onHeard(id, pageTime(this.context, lastLoud) + latencyMs(this.context));
    }
    if (begun && this.gate.open && performance.now() - this.lastAck >= ACK_MS) this.report(false);
  }

  report(final) {
    const part = this.current === null ? null : this.events.partOf(this.current.id);
    const playing = this.receiver?.getSynchronizationSources()[0];
    if (part === null || playing === undefined) return;
    this.lastAck = performance.now();
    this.send({
      type: 'playback.ack', response_id: this.current.id, item_id: part.itemId, content_index: part.contentIndex,
      rtp_timestamp: playing.rtpTimestamp, output_latency_ms: Math.round(latencyMs(this.context)) + RTP_AHEAD_MS, final,
    });
  }

  setGain() {
    if (this.gain !== undefined) this.gain.gain.value = this.gate.open ? 1 : 0;
  }

  async readStats() {
    if (this.over) return;
    for (const entry of (await this.peer.getStats()).values()) {
      if (entry.type !== 'inbound-rtp' || entry.kind !== 'audio') continue;
      this.expectMore(entry.packetsReceived);
      const audible = (entry.concealedSamples ?? 0) - (entry.silentConcealedSamples ?? 0);
      const ms = (audible - this.concealed) / 48;
      this.concealed = audible;
      if (ms >= LEAST_GAP_MS && this.current?.heard) this.events.onGap(this.current.id, ms);
    }
  }

  /** Notice a server that went away without a word. */
  expectMore(count) {
    const now = performance.now();
    if (count !== this.packets.count) this.packets = { count, at: now };
    else if (now - this.packets.at >= SILENT_MS) this.finish(closeFault(0, 'nothing comes from the server any more'));
  }

  watch() {
    const state = this.peer.connectionState;
    clearTimeout(this.doubt);
    if (state === 'failed' || state === 'closed') this.finish(closeFault(0, `the call has ${state}`));
    if (state === 'disconnected') this.doubt = setTimeout(() => this.finish(closeFault(0, 'nothing comes any more')), PATIENCE_MS);
  }

  send(event) {
    if (this.channel?.readyState !== 'open') return;
    this.channel.send(JSON.stringify(event));
    this.events.onSent(event);
  }

  async changeMicrophone() {
    await this.sender?.replaceTrack(this.microphone.track);
  }

  // -- the camera

  /** Whether the server takes a video track; pictures in events are the other way. */
  get takesVideo() {
    return this.video?.currentDirection === 'sendonly';
  }

  /** Send this track (null: none), so many pictures a second, as sharp as they come. */
  async showCamera(track, fps = 1) {
    if (this.over) return;
    const { sender } = this.video;
    await sender.replaceTrack(track);
    if (track === null) return;
    const parameters = sender.getParameters();
    for (const encoding of parameters.encodings) encoding.maxFramerate = fps;
    parameters.degradationPreference = 'maintain-resolution';
    await sender.setParameters(parameters);
  }

  get waitingBytes() {
    return this.channel?.bufferedAmount ?? 0;
  }

  get maxMessage() {
    return this.peer?.sctp?.maxMessageSize || Infinity;
  }

  /** Where the next sample of the microphone is on the server's input time line: not known here. */
  get inputMs() {
    return null;
  }

  async close() {
    this.finish(null);
  }

  finish(fault) {
    if (this.over) return;
    this.free();
    this.events.onClosed(fault);
  }

  free() {
    if (this.over) return;
    this.over = true;
    clearInterval(this.stats);
    clearTimeout(this.doubt);
    if (this.channel !== undefined) this.channel.onclose = null;
    this.peer?.close();
    this.sink.srcObject = null;
    rest(this.context, [this.source, this.gain, this.meter]);
  }
}
