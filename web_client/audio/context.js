// Audio contexts: made in a click (browsers refuse sound without one), with their worklets.
//
// A context that is no longer needed is put to rest and used again: browsers keep much of a closed one for as long as the page lives.

import { Fault } from '../model/faults.js';

const START_MS = 3000;
const atRest = new Map(); // purpose -> context

/** An AudioContext that runs, with these worklet files. `options` as the constructor's. */
export async function runningContext(files, options = {}) {
  if (typeof AudioWorkletNode === 'undefined') throw new Fault('unsupported', 'AudioWorklet');
  const purpose = JSON.stringify([files, options]);
  const rested = atRest.get(purpose);
  atRest.delete(purpose);
  const context = rested ?? made(purpose, options);
  context.wanted = true;
  try {
    await Promise.race([context.resume(), new Promise((done) => setTimeout(done, START_MS))]);
    if (context.state !== 'running') throw new Fault('no_output', `audio is ${context.state}`);
    if (rested === undefined) await Promise.all(files.map((file) => context.audioWorklet.addModule(new URL(file, import.meta.url))));
  } catch (error) {
    context.wanted = false;
    await context.close();
    throw error instanceof Fault ? error : new Fault('unreachable', error.message); // the files did not come
  }
  return context;
}

function made(purpose, options) {
  let context;
  try {
    context = new AudioContext({ latencyHint: 'interactive', ...options });
  } catch (error) {
    throw new Fault('no_output', error.message);
  }
  context.purpose = purpose;
  // a phone call, or another program that takes the device, suspends it
  context.addEventListener('statechange', () => context.wanted && ['suspended', 'interrupted'].includes(context.state) && context.resume());
  return context;
}

/** Put a context to rest, and end its nodes: a worklet that is not told to end, and an open message port, live for ever. */
export async function rest(context, nodes) {
  for (const node of nodes) {
    if (!node) continue;
    node.disconnect();
    if (node.port === undefined) continue;
    node.port.onmessage = null;
    node.port.postMessage({ over: true });
    node.port.close();
  }
  if (!context?.wanted) return;
  context.wanted = false;
  if (atRest.has(context.purpose)) {
    await context.close();
    return;
  }
  atRest.set(context.purpose, context);
  await context.suspend();
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
