// The loudspeaker of the WebSocket connection: a PlaybackRing, and a report of it each 21 ms while something plays.

import { PlaybackRing } from '../model/playback_ring.js';

const REPORT_EVERY = 4; // blocks of 128 samples

class Playback extends AudioWorkletProcessor {
  constructor() {
    super();
    this.ring = new PlaybackRing();
    this.blocks = 0;
    this.over = false;
    this.port.onmessage = ({ data }) => this.obey(data);
  }

  obey({ op, key, samples, response, over }) {
    if (over) this.over = true;
    else if (op === 'push') this.ring.push(key, samples);
    else if (op === 'complete') this.ring.complete(key);
    else if (op === 'cut') this.ring.cut((name) => name.startsWith(`${response}|`));
    else if (op === 'hold') this.ring.hold();
    else if (op === 'release') this.ring.release();
  }

  process(_, outputs) {
    const [out] = outputs[0];
    this.ring.pull(out);
    for (const other of outputs[0].slice(1)) other.set(out);
    if (++this.blocks % REPORT_EVERY === 0 || this.ring.ended.length > 0) {
      const report = this.ring.report();
      if (report.playing !== null || report.ended.length > 0) this.port.postMessage(report);
    }
    return !this.over;
  }
}

registerProcessor('playback', Playback);
