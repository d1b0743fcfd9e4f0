// What the loudspeaker plays: parts of answers in order, each with the exact count of its samples that were played.
//
// Invariants: `played` of a part never falls and never exceeds what came in; a part that was cut plays nothing more, and
// what still comes for it is dropped; every part ends in exactly one entry of `ended`. Sound is never switched hard: it
// fades over FADE samples. Pure: runs in the worklet and in tests. Positions are samples at the stream's own rate.

export const FADE = 72; // 3 ms at 24 kHz
const REMEMBERED = 64;

export class PlaybackRing {
  constructor() {
    this.parts = [];
    this.over = []; // keys of parts that ended: late audio of theirs is dropped
    this.ended = [];
    this.held = false;
    this.gain = 1;
    this.dropped = 0;
  }

  /** More audio of a part; `samples` is an Int16Array. */
  push(key, samples) {
    if (this.over.includes(key)) {
      this.dropped += samples.length;
      return;
    }
    let part = this.find(key);
    if (part === undefined) {
      part = {
        key, chunks: [], at: 0, received: 0, played: 0,
        underruns: 0, missing: 0, dry: false, complete: false, cut: false,
      };
      this.parts.push(part);
    }
    if (part.cut || samples.length === 0) return;
    part.chunks.push(samples);
    part.received += samples.length;
    part.dry = false;
  }

  /** No more audio of this part comes. */
  complete(key) {
    const part = this.find(key);
    if (part !== undefined) part.complete = true;
  }

  /** Silence every part that `matches` says, for good. */
  cut(matches) {
    this.held = false;
    for (const part of this.parts) if (matches(part.key)) part.cut = true;
    this.parts = this.parts.filter((part, k) => {
      const sounding = k === 0 && part.played > 0 && part.chunks.length > 0 && this.gain > 0;
      if (part.cut && !sounding) this.end(part);
      return !part.cut || sounding;
    });
    if (this.parts.length === 0 || !this.parts[0].cut) this.gain = 1;
  }

  /** Be silent and keep what there is (a pause that may be undone). */
  hold() {
    this.held = true;
  }

  /** Go on from where `hold` stopped. */
  release() {
    this.held = false;
  }

  /** Fill `out` (Float32Array) with what sounds next; silence where there is nothing. */
  pull(out) {
    for (let i = 0; i < out.length; i++) out[i] = this.next();
  }

  next() {
    const part = this.parts[0];
    if (part === undefined) return 0;
    const target = this.held || part.cut ? 0 : 1;
    if (this.gain !== target) {
      this.gain = target > this.gain ? Math.min(1, this.gain + 1 / FADE) : Math.max(0, this.gain - 1 / FADE);
    }
    if (this.gain === 0) {
      if (part.cut) this.leave(part);
      return 0;
    }
    if (part.chunks.length === 0) return this.withoutSound(part);
    const chunk = part.chunks[0];
    const sample = chunk[part.at++] / 32768;
    part.played++;
    if (part.at >= chunk.length) {
      part.chunks.shift();
      part.at = 0;
      if (part.complete && part.chunks.length === 0) this.leave(part);
    }
    return sample * this.gain;
  }

  withoutSound(part) {
    if (part.complete || part.cut) {
      this.leave(part);
    } else if (part.played > 0) {
      if (!part.dry) part.underruns++;
      part.dry = true;
      part.missing++;
    }
    return 0;
  }

  leave(part) {
    this.parts.shift();
    this.gain = 1;
    this.end(part);
  }

  end(part) {
    this.ended.push(state(part));
    this.over.push(part.key);
    if (this.over.length > REMEMBERED) this.over.shift();
  }

  /** Where playing is, and which parts ended since the last call. */
  report() {
    const ended = this.ended;
    this.ended = [];
    return { playing: this.parts.length > 0 ? state(this.parts[0]) : null, ended, held: this.held };
  }

  find(key) {
    return this.parts.find((part) => part.key === key);
  }
}

function state(part) {
  const { key, received, played, underruns, missing, dry, complete, cut } = part;
  return { key, received, played, underruns, missing, dry, complete, cut };
}
