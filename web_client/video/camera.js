// The user's camera, or the screen that they share: one stream, and a video that always has its newest picture.

import { Fault, cameraFault } from '../model/faults.js';
import { constraintsOf } from '../model/camera_state.js';

export class Camera {
  /** `onEnded()`: it went away by itself; `onMuted(on)`: it gives no pictures for now; `onPicture()`: there is a new one. */
  constructor({ onEnded, onMuted, onPicture }) {
    this.onEnded = onEnded;
    this.onMuted = onMuted;
    this.onPicture = onPicture;
    this.stream = null;
    this.wanted = null; // what `open` waits for
    this.video = Object.assign(document.createElement('video'), { muted: true, playsInline: true });
    this.pictures = 0; // how many there were so far
    this.looked = -1; // the video's time at the last look of a page that nobody sees
  }

  /** Throws a Fault. Whoever closes it, or opens it anew, while the browser still asks the user, gets a stream that is free again. */
  async open(source, settings) {
    if (!window.isSecureContext || navigator.mediaDevices === undefined) throw new Fault('camera_insecure', location.origin);
    this.close(); // some systems open a camera only once
    const wanted = (this.wanted = {});
    const stream = await ask(source, settings);
    if (this.wanted !== wanted) return void stop(stream);
    const track = stream.getVideoTracks()[0];
    if (source === 'screen') track.contentHint = 'detail';
    this.listening = new AbortController(); // a browser keeps tracks for a while after they were stopped
    const { signal } = this.listening;
    track.addEventListener('ended', () => this.onEnded(), { signal });
    track.addEventListener('mute', () => this.onMuted(true), { signal });
    track.addEventListener('unmute', () => this.onMuted(false), { signal });
    this.stream = stream;
    this.video.srcObject = stream;
    await this.video.play().catch(() => {}); // muted: needs no permission; closed meanwhile: no fault
    this.follow(stream);
    return undefined;
  }

  /** Count the pictures as they are shown. */
  follow(stream) {
    if (this.stream !== stream || this.video.requestVideoFrameCallback === undefined) return;
    this.video.requestVideoFrameCallback(() => {
      if (this.stream !== stream) return;
      this.pictures++;
      this.onPicture();
      this.follow(stream);
    });
  }

  /** Look whether there is a new picture, where the browser does not say it: in a page that nobody sees, or an old browser. */
  poll() {
    if (!document.hidden && this.video.requestVideoFrameCallback !== undefined) return;
    if (this.video.currentTime === this.looked) return;
    this.looked = this.video.currentTime;
    this.pictures++;
    this.onPicture();
  }

  get track() {
    return this.stream?.getVideoTracks()[0] ?? null;
  }

  close() {
    this.wanted = null;
    this.listening?.abort();
    if (this.stream !== null) stop(this.stream);
    this.stream = null;
    this.video.srcObject = null;
  }
}

async function ask(source, settings) {
  const video = constraintsOf(settings, source);
  try {
    if (source === 'screen') return await navigator.mediaDevices.getDisplayMedia({ video, audio: false });
    return await navigator.mediaDevices.getUserMedia({ video });
  } catch (error) {
    if (error.name !== 'OverconstrainedError' || settings.camera === '') throw cameraFault(error, source);
  }
  return ask(source, { ...settings, camera: '' }); // the chosen one is gone: any will do
}

function stop(stream) {
  for (const track of stream.getTracks()) track.stop();
}

/** Whether this browser can share a screen; phones cannot. */
export const canShare = () => navigator.mediaDevices?.getDisplayMedia !== undefined;

/** The cameras that can be chosen; their names are known only once one was allowed. */
export async function cameras() {
  if (navigator.mediaDevices?.enumerateDevices === undefined) return [];
  const devices = await navigator.mediaDevices.enumerateDevices();
  return devices.filter((device) => device.kind === 'videoinput' && device.deviceId !== '')
    .map((device, k) => ({ id: device.deviceId, name: device.label || `Camera ${k + 1}` }));
}
