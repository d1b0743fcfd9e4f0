// Whether the voice that comes over RTP may be heard: mute by generation.
//
// `playback.mute` closes the gate at once; `playback.play` opens it again, but not before the RTP clock of what is being
// played has reached the packet that it names, and never for an epoch older than the last mute. Pure.

/** Whether RTP timestamp `a` is at or after `b`; they wrap at 2^32. */
export const reached = (a, b) => ((a - b) >>> 0) < 0x80000000;

export class MuteGate {
  constructor() {
    this.open = true;
    this.epoch = -1;
    this.opensAt = null;
  }

  mute(epoch) {
    this.open = false;
    this.epoch = Math.max(this.epoch, epoch);
    this.opensAt = null;
  }

  /** `at`: RTP timestamp of the first packet; absent: now. */
  play(epoch, at) {
    if (epoch < this.epoch) return;
    if (at === undefined || at === null) this.open = true;
    else if (!this.open) this.opensAt = at;
  }

  /** `playing`: RTP timestamp of what is being played now. True if that opened the gate. */
  poll(playing) {
    if (this.opensAt === null || !reached(playing, this.opensAt)) return false;
    this.open = true;
    this.opensAt = null;
    return true;
  }
}
