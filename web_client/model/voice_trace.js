// When the user was last audible, by the level of the microphone: for the latency that a person feels. An estimate of the
// page's own, beside what the server decides. Pure; milliseconds.

const FLOOR_RISE = 1.002;
const OVER_FLOOR = 3; // about 10 dB
const LEAST = 0.003; // -50 dBFS

export class VoiceTrace {
  constructor() {
    this.floor = 0.01;
    this.lastVoiced = null;
  }

  /** The level of the last 20 ms, or so. */
  hear(rms, now) {
    this.floor = rms < this.floor ? Math.max(1e-5, rms) : Math.min(0.05, this.floor * FLOOR_RISE);
    if (rms > Math.max(LEAST, this.floor * OVER_FLOOR)) this.lastVoiced = now;
  }
}
