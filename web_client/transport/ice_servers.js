// The STUN and TURN servers that this server names. They are asked for at every connection: a credential may have changed.

import { Fault, httpFault } from '../model/faults.js';

const ANSWER_MS = 8000;

/** For RTCPeerConnection; throws a Fault. */
export async function iceServers(key) {
  const headers = key === '' ? {} : { Authorization: `Bearer ${key}` };
  let response;
  try {
    response = await fetch('/v1/realtime/ice_servers', { headers, signal: AbortSignal.timeout(ANSWER_MS) });
  } catch (error) {
    throw new Fault('unreachable', error.message);
  }
  if (!response.ok) throw httpFault(response.status, await response.text());
  return (await response.json()).ice_servers;
}
