// Pictures of the camera as events: JPEG, one at a time, as FramePace says.

import { FramePace } from '../model/frame_pace.js';
import { toBase64 } from '../model/pcm.js';

export class FrameSender {
  /** `connection`: send(event), waitingBytes, inputMs, maxMessage. */
  constructor(camera, connection, fps, maxBytes) {
    this.camera = camera;
    this.connection = connection;
    this.pace = new FramePace(fps, maxBytes, connection.maxMessage);
    this.canvas = document.createElement('canvas');
    this.pen = this.canvas.getContext('2d', { alpha: false });
    this.taken = camera.pictures;
    this.over = false;
    this.timer = setInterval(() => this.look(), Math.max(20, 250 / fps));
  }

  look() {
    const { video, pictures } = this.camera;
    const fresh = pictures !== this.taken && video.videoWidth > 0;
    if (!this.pace.due(performance.now(), fresh, this.connection.waitingBytes)) return;
    this.taken = pictures;
    const at = this.connection.inputMs;
    [this.canvas.width, this.canvas.height] = this.pace.size(video.videoWidth, video.videoHeight);
    this.pen.drawImage(video, 0, 0, this.canvas.width, this.canvas.height);
    this.canvas.toBlob((blob) => this.send(blob, at), 'image/jpeg', this.pace.quality);
  }

  async send(blob, at) {
    const bytes = blob === null ? new Uint8Array() : new Uint8Array(await blob.arrayBuffer());
    if (!this.pace.made(bytes.length) || this.over) return;
    const event = { type: 'input_image_buffer.append', image: toBase64(bytes) };
    this.connection.send(at === null ? event : { ...event, timestamp_ms: at });
  }

  stop() {
    this.over = true;
    clearInterval(this.timer);
  }
}
