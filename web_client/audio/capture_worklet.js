// The microphone: its level always, and its samples at 24 kHz in pieces of 20 ms where somebody wants them.

import { loudness, toInt16 } from '../model/pcm.js';
import { Resampler } from '../model/resampler.js';

const RATE = 24000;
const PIECE = RATE / 50;

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.sending = false;
    this.over = false;
    this.resampler = new Resampler(sampleRate, RATE);
    this.piece = new Float32Array(PIECE);
    this.filled = 0;
    this.block = new Float32Array(Math.ceil(sampleRate / 50 / 128) * 128);
    this.at = 0;
    this.port.onmessage = ({ data }) => {
      if (data.over) this.over = true;
      else this.sending = data.sending;
    };
  }

  process(inputs) {
    const input = inputs[0][0];
    if (input === undefined || this.over) return !this.over;
    this.block.set(input, this.at);
    this.at += input.length;
    if (this.at < this.block.length) return true;
    this.at = 0;
    this.port.postMessage({ level: loudness(this.block) });
    if (this.sending) this.cut(this.resampler.push(this.block));
    return true;
  }

  cut(samples) {
    for (const sample of samples) {
      this.piece[this.filled++] = sample;
      if (this.filled < PIECE) continue;
      this.filled = 0;
      const pcm = toInt16(this.piece);
      this.port.postMessage({ pcm }, [pcm.buffer]);
    }
  }
}

registerProcessor('capture', Capture);
