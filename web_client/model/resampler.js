// A streaming resampler: windowed sinc, one channel, any ratio of rates. State is kept over blocks, so that a stream in
// pieces gives the same samples as in one piece. Pure.

const HALF = 16; // zero crossings on each side

export class Resampler {
  constructor(from, to) {
    this.step = from / to;
    this.cutoff = Math.min(1, to / from);
    this.reach = Math.ceil(HALF / this.cutoff);
    this.history = new Float32Array(2 * this.reach);
    this.held = this.reach; // leading silence: the first output lies on the first input
    this.position = this.reach;
  }

  /** What this block of input (Float32Array) makes. */
  push(input) {
    if (this.step === 1) return Float32Array.from(input);
    const line = new Float32Array(this.held + input.length);
    line.set(this.history.subarray(0, this.held));
    line.set(input, this.held);
    const out = [];
    while (this.position + this.reach < line.length) {
      out.push(this.at(line, this.position));
      this.position += this.step;
    }
    const keep = Math.max(0, Math.floor(this.position) - this.reach);
    this.history = line.slice(keep);
    this.held = this.history.length;
    this.position -= keep;
    return Float32Array.from(out);
  }

  at(line, position) {
    const first = Math.ceil(position - this.reach);
    const last = Math.floor(position + this.reach);
    let sum = 0;
    for (let k = Math.max(0, first); k <= last; k++) sum += line[k] * this.weight(k - position);
    return sum;
  }

  weight(distance) {
    const x = distance * this.cutoff;
    const sinc = x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
    return this.cutoff * sinc * (0.5 + 0.5 * Math.cos((Math.PI * distance) / (this.reach + 1)));
  }
}
