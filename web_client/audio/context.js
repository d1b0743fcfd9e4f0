// Audio contexts: made in a click (browsers refuse sound without one), with their worklets.

import { Fault } from '../model/faults.js';

const START_MS = 3000;

/** An AudioContext that runs, with these worklet files. `options` as the constructor's. */
export async function runningContext(files, options = {}) {
  if (typeof AudioWorkletNode === 'undefined') throw new Fault('unsupported', 'AudioWorklet');
  let context;
  try {
    context = new AudioContext({ latencyHint: 'interactive', ...options });
  } catch (error) {
    throw new Fault('no_output', error.message);
  }
  try {
    await Promise.race([context.resume(), new Promise((done) => setTimeout(done, START_MS))]);
    if (context.state !== 'running') throw new Fault('no_output', `audio is ${context.state}`);
    await Promise.all(files.map((file) => context.audioWorklet.addModule(new URL(file, import.meta.url))));
  } catch (error) {
    await context.close();
    throw error instanceof Fault ? error : new Fault('unreachable', error.message); // the files did not come
  }
  // a phone call, or another program that takes the device, suspends it
  context.addEventListener('statechange', () => ['suspended', 'interrupted'].includes(context.state) && context.resume());
  return context;
}

/** Whether the browser knows of no loudspeaker at all. Only Chromium lists them unasked, and plays into nothing without one. */
export async function outputIsMissing() {
  if (!('setSinkId' in AudioContext.prototype)) return false;
  const devices = await navigator.mediaDevices.enumerateDevices();
  return devices.length > 0 && !devices.some((device) => device.kind === 'audiooutput');
}

/** What the sound card adds, in milliseconds. */
export function latencyMs(context) {
  return 1000 * ((context.outputLatency || 0) + (context.baseLatency || 0));
}

/** Time of the page's clock (performance.now) at a time of this context. */
export function pageTime(context, at) {
  return performance.now() - 1000 * (context.currentTime - at);
}
