// A streaming resampler: windowed sinc, one channel, any ratio of whole rates. State is kept over blocks, so that a stream in
// pieces gives the same samples as in one piece; places are whole numbers, so that nothing drifts. Pure.

const HALF = 16; // zero crossings on each side

export class Resampler {
  constructor(from, to) {
    const common = divisor(from, to);
    this.step = from / common; // output k lies at input k * step / phases
    this.phases = to / common;
    this.cutoff = Math.min(1, to / from);
    this.reach = Math.ceil(HALF / this.cutoff);
    this.line = new Float32Array(this.reach); // leading silence: the first output lies on the first input
    this.place = this.reach;
    this.phase = 0;
    this.kernels = new Map();
  }

  /** What this block of input (Float32Array) makes. */
  push(input) {
    const line = new Float32Array(this.line.length + input.length);
    line.set(this.line);
    line.set(input, this.line.length);
    const out = new Float32Array(Math.ceil(((line.length + 1) * this.phases) / this.step) + 1);
    let count = 0;
    while (this.place + this.reach < line.length) {
      out[count++] = this.at(line);
      const next = this.phase + this.step;
      this.place += Math.floor(next / this.phases);
      this.phase = next % this.phases;
    }
    const gone = Math.min(line.length, Math.max(0, this.place - this.reach));
    this.line = line.slice(gone);
    this.place -= gone;
    return out.slice(0, count);
  }

  at(line) {
    const kernel = this.kernel(this.phase);
    const first = this.place - this.reach;
    let sum = 0;
    for (let k = 0; k < kernel.length; k++) sum += line[first + k] * kernel[k];
    return sum;
  }

  /** The weights of the inputs around a place that lies `phase` behind a sample; few phases ever occur. */
  kernel(phase) {
    let kernel = this.kernels.get(phase);
    if (kernel === undefined) {
      const offset = phase / this.phases;
      kernel = Float32Array.from({ length: 2 * this.reach + 1 }, (_, k) => this.weight(k - this.reach - offset));
      this.kernels.set(phase, kernel);
    }
    return kernel;
  }

  weight(distance) {
    const x = distance * this.cutoff;
    const sinc = x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
    const window = Math.max(0, 0.5 + 0.5 * Math.cos((Math.PI * distance) / (this.reach + 1)));
    return this.cutoff * sinc * window;
  }
}

function divisor(a, b) {
  return b === 0 ? a : divisor(b, a % b);
}
