// What went wrong, in words that say what to do. Pure.

export class Fault extends Error {
  /** `kind`: a key of TEXTS. `retry`: connecting again may help. */
  constructor(kind, detail = '') {
    super(TEXTS[kind][0]);
    this.kind = kind;
    this.advice = TEXTS[kind][1];
    this.detail = detail;
    this.retry = kind === 'lost';
  }
}

export const TEXTS = {
  no_permission: [
    'The microphone is blocked.',
    'Allow the microphone for this page: the symbol beside the address opens the permissions. Then connect again.',
  ],
  no_microphone: ['There is no microphone.', 'Plug one in, or choose another one in the settings, then connect again.'],
  microphone_busy: [
    'The microphone cannot be opened.',
    'Another program may be using it. Close that program, or choose another microphone in the settings.',
  ],
  insecure: [
    'The browser gives no microphone to this address.',
    'Microphones need a secure address: https://… (the server has the option --tls-self-signed), or http://localhost on the server’s own machine.',
  ],
  unsupported: ['This browser cannot do that.', 'A current Chrome, Edge, Firefox or Safari is needed.'],
  full: ['The server is full.', 'All places are taken. Wait a moment, then connect again.'],
  not_ready: ['The server is not ready.', 'It is starting or shutting down. Wait a moment, then connect again.'],
  key: ['The server wants a key.', 'Enter the key under Settings, then connect again.'],
  refused: ['The server did not accept the connection.', 'The event log below may say why.'],
  unreachable: ['The server cannot be reached.', 'Check that it is running and that this device has a network.'],
  no_media: [
    'No sound gets through to the server.',
    'A firewall may block UDP. Choose “WebSocket” under Settings, then connect again.',
  ],
  lost: ['The connection was lost.', 'Trying to connect again.'],
  gone: ['The connection was lost.', 'Connecting again did not work. Check the network, then connect.'],
  expired: ['The session has reached its longest time.', 'Connect again to go on.'],
  no_output: [
    'This browser plays no sound.',
    'Check that a loudspeaker or headphones are connected and that the page is not muted, then connect again.',
  ],
  camera_no_permission: [
    'The camera is blocked.',
    'Allow the camera for this page: the symbol beside the address opens the permissions. Then switch it on again.',
  ],
  no_camera: ['There is no camera.', 'Plug one in, or choose another one under Settings, then switch it on again.'],
  camera_busy: [
    'The camera cannot be opened.',
    'Another program may be using it. Close that program, or choose another camera under Settings, then switch it on again.',
  ],
  camera_insecure: [
    'The browser gives no camera to this address.',
    'Cameras need a secure address: https://… (the server has the option --tls-self-signed), or http://localhost on the server’s own machine.',
  ],
  camera_lost: ['The camera is gone.', 'It was unplugged, or taken away from this page. Plug it in, then switch it on again.'],
  screen_cancelled: ['Nothing is shared.', 'You closed the choice of what to share, or your system forbids it. Press “Share screen” to choose again.'],
  camera_blind: [
    'This server does not look at pictures.',
    'The camera is off again. You can go on talking. A server with eyes is started with configs/cpu-vision.yaml, for example.',
  ],
  camera_refused: ['The server did not accept the camera.', 'The camera is off again. The details say why.'],
  internal: ['Something in this page went wrong.', 'Reload the page. The details below help whoever fixes it.'],
};

/** The fault behind an exception of getUserMedia. */
export function microphoneFault(error) {
  if (error instanceof Fault) return error;
  const kind = {
    NotAllowedError: 'no_permission', SecurityError: 'no_permission', PermissionDeniedError: 'no_permission',
    NotFoundError: 'no_microphone', OverconstrainedError: 'no_microphone',
    NotReadableError: 'microphone_busy', AbortError: 'microphone_busy',
  }[error.name];
  return new Fault(kind ?? 'internal', `${error.name}: ${error.message}`);
}

/** The fault behind an exception of getUserMedia for a camera, or of getDisplayMedia (`source` screen). */
export function cameraFault(error, source) {
  if (error instanceof Fault) return error;
  const kind = {
    NotAllowedError: source === 'screen' ? 'screen_cancelled' : 'camera_no_permission', SecurityError: 'camera_no_permission',
    NotFoundError: 'no_camera', OverconstrainedError: 'no_camera',
    NotReadableError: 'camera_busy', AbortError: source === 'screen' ? 'screen_cancelled' : 'camera_busy',
  }[error.name];
  return new Fault(kind ?? 'internal', `${error.name}: ${error.message}`);
}

/** The fault behind an HTTP answer. `body`: its text. */
export function httpFault(status, body = '') {
  let param = null;
  let message = body.slice(0, 200);
  try {
    ({ param = null, message } = JSON.parse(body).error);
  } catch {
    // not an error body of the API: its text will do
  }
  if (status === 401) return new Fault('key', message);
  if (status === 503) return new Fault(param === 'draining' || param === 'starting' ? 'not_ready' : 'full', message);
  if (status === 429) return new Fault('full', message);
  return new Fault('refused', `${status} ${message}`);
}

/** The fault behind a connection that ended by itself. */
export function closeFault(code, reason, expired = false) {
  if (expired) return new Fault('expired', reason);
  return new Fault('lost', reason === '' ? `closed with code ${code}` : `${reason} (${code})`);
}

/** Milliseconds before the attempt number `attempt` (from 0) to connect again; null: no further one. */
export function retryDelay(attempt) {
  return [500, 1000, 2000, 4000, 8000][attempt] ?? null;
}
