// The user's microphone: one stream, its level, and its samples for who wants them.

import { Fault, microphoneFault } from '../model/faults.js';
import { rest, runningContext } from './context.js';

export class Microphone {
  /** `onLevel(rms)`; `onPcm(Int16Array)`: 20 ms at 24 kHz, while `send(true)`. */
  constructor(onLevel) {
    this.onLevel = onLevel;
    this.onPcm = null;
    this.onLost = null; // it was unplugged, or taken away
    this.stream = null;
    this.context = null;
    this.source = null;
    this.node = null;
    this.muted = false;
  }

  async open({ microphone, echoCancellation }) {
    if (!window.isSecureContext || navigator.mediaDevices === undefined) throw new Fault('insecure', location.origin);
    const stream = await this.ask(microphone, echoCancellation);
    this.stop();
    this.stream = stream;
    for (const track of stream.getAudioTracks()) {
      track.enabled = !this.muted;
      track.addEventListener('ended', () => this.stream === stream && this.onLost?.());
    }
    if (this.context === null) {
      this.context = await runningContext(['capture_worklet.js']);
      this.node = new AudioWorkletNode(this.context, 'capture', { numberOfOutputs: 1, channelCount: 1, channelCountMode: 'explicit' });
      this.node.port.onmessage = ({ data }) => {
        if (data.level !== undefined) this.onLevel(data.level);
        else if (this.onPcm !== null) this.onPcm(data.pcm);
      };
      this.silent = this.context.createGain(); // a node that leads nowhere is not run
      this.silent.gain.value = 0;
      this.node.connect(this.silent).connect(this.context.destination);
    }
    this.source = this.context.createMediaStreamSource(stream);
    this.source.connect(this.node);
    return stream;
  }

  async ask(microphone, echoCancellation) {
    const wanted = { echoCancellation, noiseSuppression: true, autoGainControl: true, channelCount: 1 };
    if (microphone !== '') wanted.deviceId = { exact: microphone };
    try {
      return await navigator.mediaDevices.getUserMedia({ audio: wanted });
    } catch (error) {
      if (error.name !== 'OverconstrainedError' || microphone === '') throw microphoneFault(error);
    }
    return this.ask('', echoCancellation); // the chosen one is gone: any will do
  }

  /** Hand samples to `onPcm`, or stop that. */
  send(on) {
    this.node?.port.postMessage({ sending: on });
  }

  mute(on) {
    this.muted = on;
    for (const track of this.stream?.getAudioTracks() ?? []) track.enabled = !on;
  }

  get track() {
    return this.stream?.getAudioTracks()[0] ?? null;
  }

  stop() {
    this.source?.disconnect();
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.source = this.stream = null;
  }

  async close() {
    this.stop();
    const { context, node, silent } = this;
    this.context = this.node = this.silent = null;
    await rest(context, [node, silent]);
  }
}

/** The microphones that can be chosen; their names are known only once one was allowed. */
export async function microphones() {
  if (navigator.mediaDevices?.enumerateDevices === undefined) return [];
  const devices = await navigator.mediaDevices.enumerateDevices();
  return devices.filter((device) => device.kind === 'audioinput' && device.deviceId !== '')
    .map((device, k) => ({ id: device.deviceId, name: device.label || `Microphone ${k + 1}` }));
}
