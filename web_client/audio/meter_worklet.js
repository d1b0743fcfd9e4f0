// Passes sound on as it is, and watches it: its level each 10 ms or so, and the context time of the first loud sample after silence.

const LOUD = 0.004;
const SILENCE_S = 0.2;

class Meter extends AudioWorkletProcessor {
  constructor() {
    super();
    this.silence = new Float32Array(128);
    this.sum = 0;
    this.count = 0;
    this.blocks = 0;
    this.lastLoud = -Infinity;
    this.began = null;
    this.over = false;
    this.port.onmessage = ({ data }) => {
      this.over = data.over;
    };
  }

  process(inputs, outputs) {
    const input = inputs[0][0];
    if (input !== undefined) this.watch(input);
    outputs[0].forEach((out, channel) => out.set(inputs[0][channel] ?? input ?? this.silence));
    if (++this.blocks % 4 === 0) {
      const level = this.count === 0 ? 0 : Math.sqrt(this.sum / this.count);
      this.port.postMessage({ level, began: this.began, lastLoud: this.lastLoud, at: currentTime });
      this.sum = this.count = 0;
      this.began = null;
    }
    return !this.over;
  }

  watch(input) {
    for (let i = 0; i < input.length; i++) {
      this.sum += input[i] * input[i];
      if (Math.abs(input[i]) < LOUD) continue;
      const at = currentTime + i / sampleRate;
      if (at - this.lastLoud > SILENCE_S) this.began = at;
      this.lastLoud = at;
    }
    this.count += input.length;
  }
}

registerProcessor('meter', Meter);
