// When a picture of the camera goes to the server as an event, and how large it is.
//
// Invariants: never two at a time; never faster than the rate; nothing while what was sent before still waits; never the same picture
// twice. A picture that comes out too large is left out, and the next ones are made smaller. Pure; milliseconds and bytes.

const LONGEST = 640; // the server looks at no more
const WAITING_BYTES = 64 * 1024;
const QUALITY = 0.8;
const EVENT_BYTES = 200; // of an event around its picture

/** From best to smallest: quality, and a share of LONGEST. */
const STEPS = [[QUALITY, 1], [0.6, 1], [0.5, 0.75], [0.4, 0.5], [0.4, 0.25]];
const BETTER_AFTER = 20;

export class FramePace {
  /** `maxBytes`: of a picture; `maxMessage`: of a whole event in base64 (Infinity: any). */
  constructor(fps, maxBytes, maxMessage = Infinity) {
    this.fps = fps;
    this.maxBytes = Math.min(maxBytes, ((maxMessage - EVENT_BYTES) * 3) / 4);
    this.last = -Infinity;
    this.busy = false;
    this.step = 0;
    this.fitting = 0;
    this.counts = { sent: 0, too_large: 0, waiting: 0 };
  }

  /** Whether to take a picture now. `fresh`: the camera gave one that was not taken yet; `waiting`: bytes not yet sent. */
  due(now, fresh, waiting) {
    if (!fresh || this.busy || now - this.last < 1000 / this.fps - 5) return false;
    if (waiting > WAITING_BYTES) {
      this.counts.waiting++;
      return false;
    }
    this.busy = true;
    this.last = now;
    return true;
  }

  get quality() {
    return STEPS[this.step][0];
  }

  /** The size at which a picture of this size is sent: never larger than it is. */
  size(width, height) {
    const scale = Math.min(1, (LONGEST * STEPS[this.step][1]) / Math.max(width, height));
    return [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
  }

  /** A picture came out with so many bytes (0: not at all): whether it is to be sent. */
  made(bytes) {
    this.busy = false;
    if (bytes === 0) return false;
    if (bytes > this.maxBytes) {
      this.counts.too_large++;
      this.step = Math.min(STEPS.length - 1, this.step + 1);
      this.fitting = 0;
      return false;
    }
    this.counts.sent++;
    if (bytes < this.maxBytes / 3 && ++this.fitting >= BETTER_AFTER && this.step > 0) {
      this.step--;
      this.fitting = 0;
    }
    return true;
  }
}
