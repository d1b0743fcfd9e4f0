// One client: connects, reconnects, and hands events between the connection and the conversation.
//
// `phase`: idle, connecting, open, retrying. Invariants: at most one connection at a time; what a connection that is no longer
// ours says is ignored; after a lost connection the new session is told what was said.

import { outputIsMissing } from './audio/context.js';
import { Microphone } from './audio/microphone.js';
import { AGAIN, Conversation } from './model/conversation.js';
import { EventLog } from './model/event_log.js';
import { Fault, retryDelay } from './model/faults.js';
import { OF_CAMERA, sessionOf } from './model/settings.js';
import { VoiceTrace } from './model/voice_trace.js';
import { WebRtcConnection } from './transport/webrtc.js';
import { WebSocketConnection } from './transport/websocket.js';
import { CameraFeed } from './video/camera_feed.js';

export class Client {
  /** `changed()`: something is to be shown anew. `sink`: an audio element. */
  constructor(changed, sink) {
    this.changed = changed;
    this.sink = sink;
    this.conversation = new Conversation();
    this.log = new EventLog();
    this.trace = new VoiceTrace();
    this.levels = { microphone: 0, voice: 0 };
    this.microphone = new Microphone((rms) => {
      this.levels.microphone = rms;
      this.trace.hear(rms, performance.now());
    });
    this.microphone.onLost = () => this.replaceMicrophone();
    this.camera = new CameraFeed(() => this.changed(), () => this.conversation.sight.clear());
    this.phase = 'idle';
    this.fault = null;
    this.connection = null;
    this.attempt = 0;
    this.connectMs = null;
  }

  /** Connect; never throws, see `fault`. */
  async connect(settings, key) {
    if (this.phase === 'connecting' || this.phase === 'open') return;
    clearTimeout(this.timer);
    const again = this.phase === 'retrying';
    if (!again) this.attempt = 0;
    this.options = { settings, key };
    this.fault = null;
    this.phase = 'connecting';
    this.changed();
    const began = performance.now();
    const ticket = (this.ticket = {});
    try {
      const connection = await this.dial(settings, key);
      if (this.ticket !== ticket) return await this.abandon(connection);
      this.connectMs = performance.now() - began;
      this.opened(again);
    } catch (error) {
      if (this.ticket !== ticket) return await this.abandon(null);
      this.failed(error instanceof Fault ? error : new Fault('internal', `${error.name}: ${error.message}`), again);
    }
    return this.changed();
  }

  /** The user gave up while this was being connected. */
  async abandon(connection) {
    await connection?.close();
    if (this.phase === 'idle') await this.microphone.close();
  }

  async dial(settings, key) {
    const Kind = settings.transport === 'webrtc' ? WebRtcConnection : WebSocketConnection;
    let mine = null;
    const ours = (work) => (...values) => {
      if (this.connection !== mine) return;
      work(...values);
      this.changed();
    };
    mine = new Kind({
      onEvent: ours((event) => this.take(event)),
      onSent: ours((event) => this.log.add('out', event, performance.now())),
      onClosed: ours((fault) => this.closed(fault)),
      onHeard: ours((responseId, at) => this.conversation.heard(responseId, at)),
      onGap: ours((_, ms) => this.conversation.gap(ms, performance.now())),
      onVoice: (rms) => void (this.levels.voice = rms), // often: the meters look by themselves
      partOf: (responseId) => this.conversation.partOf(responseId),
    }, this.microphone, this.sink);
    this.connection = mine;
    const live = this.microphone.track?.readyState === 'live';
    await Promise.all([live ? null : this.microphone.open(settings), mine.prepare(key)]);
    this.conversation.inputStart = await mine.open({ key, session: sessionOf(settings) });
    return mine;
  }

  opened(again) {
    this.phase = 'open';
    this.attempt = 0;
    const now = performance.now();
    const { settings } = this.options;
    if (settings.transport === 'websocket') this.send({ type: 'session.update', session: sessionOf(settings) });
    this.conversation.timeline.mark('connection', now, again ? 'connected again' : 'connected');
    if (again) this.retell();
    this.camera.attach(this.connection);
    outputIsMissing().then((missing) => {
      if (!missing || this.phase !== 'open') return;
      this.fault = new Fault('no_output', 'the browser lists no audio output');
      this.changed();
    });
  }

  /** Tell a new session what was said in the one that was lost. */
  retell() {
    this.conversation.captions.history().forEach((item, k) => {
      this.send({ type: 'conversation.item.create', item: { id: `${AGAIN}${k}`, ...item } });
    });
    const { id } = this.conversation.captions.line(`${AGAIN}note_${performance.now()}`, 'system');
    this.conversation.captions.note(id, 'connected again; the agent was told what was said so far');
  }

  take(event) {
    const now = performance.now();
    this.log.add('in', event, now);
    if (this.camera.take(event)) return;
    for (const answer of this.conversation.handle(event, now, this.trace.lastVoiced)) this.send(answer);
  }

  send(event) {
    this.connection?.send(event);
  }

  closed(fault) {
    const { expired } = this.conversation;
    const now = performance.now();
    this.conversation.ended(now);
    this.connection = null;
    this.camera.detach();
    this.levels.voice = 0;
    if (this.phase === 'connecting') return; // `open` throws, and that says it better
    this.conversation.timeline.mark('connection', now, fault === null ? 'hung up' : 'connection lost');
    if (fault === null) this.rest(null);
    else if (expired) this.rest(new Fault('expired'));
    else this.failed(fault, true);
  }

  failed(fault, again) {
    this.connection?.close();
    this.connection = null;
    this.camera.detach();
    this.conversation.ended(performance.now());
    const worthwhile = fault.retry || (again && ['unreachable', 'not_ready', 'full'].includes(fault.kind));
    const delay = again && worthwhile ? retryDelay(this.attempt++) : null;
    if (delay === null) {
      this.rest(again && worthwhile ? new Fault('gone', fault.detail) : fault, !again);
      return;
    }
    this.phase = 'retrying';
    this.fault = new Fault('lost', fault.detail);
    this.timer = setTimeout(() => this.connect(this.options.settings, this.options.key), delay);
  }

  /** Nothing is connected, nor will be by itself. `again`: the user may try again at once, so the camera may stay on. */
  rest(fault, again = false) {
    clearTimeout(this.timer);
    this.phase = 'idle';
    this.fault = fault;
    this.levels.microphone = 0;
    this.microphone.close();
    if (!again) this.camera.turnOff(this.camera.state.fault);
  }

  async hangUp() {
    const { connection } = this;
    this.connection = this.ticket = null;
    this.camera.detach();
    await connection?.close();
    this.conversation.ended(performance.now());
    this.conversation.timeline.mark('connection', performance.now(), 'hung up');
    this.levels.voice = 0;
    this.rest(null);
    this.changed();
  }

  // -- what the user does

  /** New settings; those of the microphone and of the session hold at once, the transport from the next connection on. */
  async apply(settings, name) {
    if (this.options !== undefined) this.options.settings = settings;
    if (OF_CAMERA.includes(name)) return void (await this.camera.apply(settings, name));
    if (this.phase !== 'open') return;
    if (name === 'microphone' || name === 'echoCancellation') {
      await this.replaceMicrophone();
    } else if (name !== 'transport' && name !== 'key') {
      const session = sessionOf(settings, name !== 'voice');
      if (settings.instructions.trim() === '' && name === 'instructions') session.instructions = null;
      this.send({ type: 'session.update', session });
    }
  }

  async replaceMicrophone() {
    try {
      await this.microphone.open(this.options.settings);
      await this.connection?.changeMicrophone();
      this.fault = null;
    } catch (error) {
      this.fault = error instanceof Fault ? error : new Fault('internal', error.message);
    }
    this.changed();
  }

  /** Type instead of talking. It takes the place of an answer that still runs. */
  say(text) {
    this.stop();
    this.conversation.turns.typed(performance.now());
    this.send({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content: [{ type: 'input_text', text }] } });
    this.send({ type: 'response.create' });
  }

  /** End the turn by hand. */
  answerNow() {
    this.send({ type: 'input_audio_buffer.commit' });
    this.conversation.turns.ended(performance.now(), this.trace.lastVoiced);
    this.send({ type: 'response.create' });
  }

  stop() {
    if (this.conversation.active.size > 0) this.send({ type: 'response.cancel' });
    if (this.conversation.playing !== null) this.send({ type: 'output_audio_buffer.clear' });
  }
}
