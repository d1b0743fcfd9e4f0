// One conversation as the page knows it: what the server's events mean for captions, timeline, latencies and state.
//
// Invariants: `state` follows from what is known, it is never set; every event is taken, known or not. `handle` returns the
// events that have to be sent in answer. No DOM, no audio, no clock: times are arguments, in milliseconds of one clock.

import { Captions } from './captions.js';
import { Sight } from './sight.js';
import { Timeline } from './timeline.js';
import { Turns, breakdown } from './turns.js';

const JUST_NOW_MS = 400;
const HARMLESS = new Set(['response_cancel_not_active', 'conversation_already_has_active_response', 'item_retrieve_invalid_item_id']);

export const AGAIN = 'again_'; // ids of items that tell a new session what was said before: their lines are there already

export class Conversation {
  constructor() {
    this.captions = new Captions();
    this.timeline = new Timeline();
    this.turns = new Turns();
    this.sight = new Sight();
    this.session = null;
    this.notice = '';
    this.reset();
  }

  /** Forget what belongs to one connection. */
  reset() {
    this.userSpeaks = false;
    this.userItem = null;
    this.waits = false;
    this.active = new Set();
    this.playing = null;
    this.held = false;
    this.items = new Map(); // response -> { itemId, contentIndex }
    this.lastBargeIn = -Infinity;
    this.inputStart = null; // when sample 0 of the input was sent
    this.audioSeen = false;
    this.expired = false;
    this.sight.clear();
  }

  /** The connection is over. */
  ended(now) {
    this.timeline.closeAll(now);
    for (const line of this.captions.lines) {
      if (line.who === 'agent') this.captions.finish(line.id);
      else if (line.text === '' && line.note === '') this.captions.note(line.id, 'no transcript'); // none will come
    }
    this.reset();
  }

  get state() {
    if (this.held) return 'held';
    if (this.userSpeaks) return 'hearing';
    if (this.playing !== null) return 'speaking';
    if (this.waits || this.active.size > 0) return 'thinking';
    return 'listening';
  }

  /** The part that is spoken for a response, for reports of playback. */
  partOf(responseId) {
    return this.items.get(responseId) ?? null;
  }

  /** `voiced`: when the user was last audible by the microphone's level, or null. */
  handle(event, now, voiced = null) {
    const handler = HANDLERS[event.type];
    return handler === undefined ? [] : handler(this, event, now, voiced) ?? [];
  }

  /** The first sound of a response reached the ear. */
  heard(responseId, at) {
    const turn = this.turns.reach(responseId, 'arrived', at);
    if (turn === null) return;
    this.turns.reach(responseId, 'spoke', at);
    const { total } = breakdown(turn);
    this.timeline.mark('latency', at, `answer after ${Math.round(total)} ms`);
  }

  /** The sound ran dry for a while, and goes on now. */
  gap(ms, now) {
    this.timeline.add('gap', now - ms, now);
  }

  /** The instant of a position on the server's input time line; not after `now`. */
  instant(inputMs, now) {
    return this.inputStart === null ? now : Math.min(now, this.inputStart + inputMs);
  }

  cutOff(responseId, now) {
    this.turns.interrupted(responseId);
    if (now - this.lastBargeIn > JUST_NOW_MS) this.timeline.mark('barge_in', now, 'interrupted');
    this.lastBargeIn = now;
  }

  silent(responseId, now) {
    if (this.playing !== responseId) return;
    this.playing = null;
    this.timeline.close('reply', now);
  }

  firstAudio(responseId, now) {
    this.audioSeen = true;
    this.turns.reach(responseId, 'spoke', now);
    this.timeline.close('think', now);
    this.waits = false;
  }
}

const HANDLERS = {
  'session.created': (c, e) => void (c.session = e.session),
  'session.updated': (c, e) => void (c.session = e.session),
  'input_audio_buffer.speech_started': (c, e, now) => {
    const padding = c.session?.audio?.input?.turn_detection?.prefix_padding_ms ?? 0;
    c.userSpeaks = true;
    c.userItem = e.item_id;
    c.timeline.open('user', c.instant(e.audio_start_ms + padding, now));
    c.captions.line(e.item_id, 'user');
  },
  'input_audio_buffer.speech_stopped': (c, e, now, voiced) => {
    c.userSpeaks = false;
    const span = c.timeline.running.get('user');
    const end = voiced !== null && span !== undefined && voiced > span.from ? Math.min(voiced, now) : now;
    c.timeline.close('user', end);
    c.turns.ended(now, end);
    if (c.session?.audio?.input?.turn_detection?.create_response !== false) think(c, now);
  },
  'input_audio_buffer.cleared': (c, e, now) => {
    if (c.userSpeaks && c.userItem !== null) c.captions.remove(c.userItem);
    c.userSpeaks = false;
    c.timeline.close('user', now);
  },
  'input_audio_buffer.committed': (c, e) => void c.captions.line(e.item_id, 'user', e.previous_item_id ?? undefined),
  'conversation.item.input_audio_transcription.delta': (c, e) => c.captions.append(e.item_id, 'user', e.delta ?? ''),
  'conversation.item.input_audio_transcription.completed': (c, e) => {
    c.captions.set(e.item_id, 'user', e.transcript);
    if (e.transcript.trim() === '') c.captions.note(e.item_id, 'nothing understood');
  },
  'conversation.item.input_audio_transcription.failed': (c, e) => c.captions.note(e.item_id, 'not understood'),
  'conversation.item.added': (c, e) => {
    const { item } = e;
    if (item.type !== 'message' || item.role === 'system' || item.id.startsWith(AGAIN)) return;
    const who = item.role === 'user' ? 'user' : 'agent';
    c.captions.line(item.id, who, e.previous_item_id ?? undefined);
    const text = (item.content ?? []).map((part) => part.text ?? '').join('');
    if (text !== '') c.captions.set(item.id, who, text);
  },
  'conversation.item.deleted': (c, e) => c.captions.remove(e.item_id),
  'conversation.item.truncated': (c, e) => {
    c.captions.cut(e.item_id, e.audio_end_ms);
    return [{ type: 'conversation.item.retrieve', item_id: e.item_id }];
  },
  'conversation.item.retrieved': (c, e) => {
    const text = (e.item.content ?? []).map((part) => part.transcript ?? part.text ?? '').join(' ');
    c.captions.retrieved(e.item.id, text);
  },
  'response.created': (c, e, now) => {
    c.active.add(e.response.id);
    c.notice = '';
    c.turns.answered(e.response.id);
    if (c.playing === null) think(c, now);
  },
  'response.output_item.added': (c, e) => {
    if (e.item.type === 'message') c.items.set(e.response_id, { itemId: e.item.id, contentIndex: 0 });
    if (c.items.size > 50) c.items.delete(c.items.keys().next().value);
  },
  'response.output_audio_transcript.delta': (c, e, now) => {
    c.turns.reach(e.response_id, 'thought', now);
    c.captions.append(e.item_id, 'agent', e.delta);
  },
  'response.output_text.delta': (c, e, now) => {
    c.turns.reach(e.response_id, 'thought', now);
    c.captions.append(e.item_id, 'agent', e.delta);
  },
  'response.output_audio.delta': (c, e, now) => c.firstAudio(e.response_id, now),
  'response.output_audio.done': (c, e) => c.captions.finish(e.item_id),
  'response.done': (c, e, now) => responseDone(c, e.response, now),
  'output_audio_buffer.started': (c, e, now) => {
    c.playing = e.response_id;
    c.firstAudio(e.response_id, now);
    if (!c.timeline.running.has('reply')) c.timeline.open('reply', now);
  },
  'output_audio_buffer.stopped': (c, e, now) => c.silent(e.response_id, now),
  'output_audio_buffer.cleared': (c, e, now) => {
    if (c.playing === e.response_id) c.cutOff(e.response_id, now);
    c.silent(e.response_id, now);
  },
  'playback.mute': (c, e, now) => {
    if (e.reversible) {
      c.held = true;
      c.timeline.open('duck', now);
      return;
    }
    c.held = false;
    c.timeline.close('duck', now);
    if (c.playing === e.response_id) c.cutOff(e.response_id, now);
    c.silent(e.response_id, now);
  },
  'playback.play': (c, e, now) => {
    c.held = false;
    c.timeline.close('duck', now);
    c.firstAudio(e.response_id, now);
  },
  'playback.acknowledged': (c, e, now) => {
    const ms = (samples) => samples / 24;
    if (e.reason === 'unknown') return;
    c.timeline.frontier(now, e.response_id, ms(e.generated_samples), ms(e.sent_samples), ms(e.played_samples));
    c.captions.progress(e.item_id, e.played_ms, ms(e.generated_samples));
  },
  'input_image_buffer.seen': (c, e, now) => c.sight.take(e, c.instant(e.timestamp_ms, now)),
  'input_image_buffer.cleared': (c) => c.sight.clear(),
  error: (c, e, now) => {
    if (e.error.code === 'session_expired') c.expired = true;
    if (HARMLESS.has(e.error.code)) return;
    c.notice = e.error.message;
    c.timeline.mark('error', now, e.error.message);
  },
};

function think(c, now) {
  c.waits = true;
  if (!c.timeline.running.has('think')) c.timeline.open('think', now);
}

function responseDone(c, response, now) {
  c.active.delete(response.id);
  c.waits = false;
  c.timeline.close('think', now);
  const message = response.output?.find((item) => item.type === 'message');
  if (message !== undefined) c.captions.finish(message.id);
  const reason = response.status_details?.reason;
  if (response.status === 'failed') {
    c.notice = response.status_details?.error?.message ?? 'The answer failed.';
    c.timeline.mark('error', now, c.notice);
  } else if (response.status === 'cancelled') {
    const part = c.partOf(response.id);
    if (reason === 'turn_detected') c.turns.interrupted(response.id);
    if (part !== null) c.captions.note(part.itemId, reason === 'turn_detected' ? 'interrupted' : 'stopped');
  }
}
