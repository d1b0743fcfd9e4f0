// The camera: whether it is on, whether it gives pictures, whether the server looks at them, and how that is said.
//
// `phase`: off, asking (the browser asks the user), on, lost (it went away while it was on). `server`: none (not connected), asked,
// looks. What it is called is derived, never set: `state`. A server that does not look turns the camera off. Pure; milliseconds
// of the page's clock.

const FROZEN_MS = 2000; // after as long the server says "no current picture", too

export class CameraState {
  constructor() {
    this.phase = 'off';
    this.source = null; // camera or screen
    this.server = 'none';
    this.limits = null; // the server's: max_fps, max_bytes, vision
    this.muted = false;
    this.pictureAt = 0;
    this.fault = null;
    this.asked = 0;
  }

  get on() {
    return this.phase === 'on';
  }

  /** Whether pictures may go to the server. */
  get sends() {
    return this.on && this.server === 'looks';
  }

  ask(source) {
    this.phase = 'asking';
    this.source = source;
    this.fault = null;
  }

  opened(now) {
    this.phase = 'on';
    this.muted = false;
    this.pictureAt = now;
  }

  /** It could not be opened, or is not wanted any more. */
  off(fault = null) {
    this.phase = 'off';
    this.source = null;
    this.fault = fault;
    this.forgetServer();
  }

  /** Its track ended by itself. */
  lost(fault) {
    this.phase = 'lost';
    this.fault = fault;
    this.forgetServer();
  }

  mute(on) {
    this.muted = on;
  }

  /** A new picture is shown in the preview. */
  picture(now) {
    this.pictureAt = now;
  }

  // -- the server

  /** The name of an event that asks the server to look. */
  askServer() {
    this.server = 'asked';
    this.asked++;
    return `camera_${this.asked}`;
  }

  forgetServer() {
    this.server = 'none';
    this.limits = null;
  }

  /** What a session's update says of it: the server looks from here on, with these limits. */
  granted(session) {
    const limits = session?.extensions?.video ?? null;
    if (this.on && this.server === 'asked' && limits !== null) this.server = 'looks';
    if (this.server === 'looks') this.limits = limits;
  }

  /** Whether an `error` event is the answer to our asking: null, `camera_blind`, `camera_refused`, or `rate`: the server looks, but never
   * so often. */
  refusal({ code = '', param = '', event_id: eventId = '' }) {
    const ours = param?.startsWith('session.extensions.video') || (eventId ?? '').startsWith('camera_');
    if (this.server === 'none' || !(ours || code === 'unsupported_extension')) return null;
    if (param === 'session.extensions.video.max_fps') return 'rate';
    const blind = code === 'unsupported_extension' || param === 'session.extensions.video' || param === 'session.extensions';
    return blind ? 'camera_blind' : 'camera_refused';
  }

  /** Whether what is seen can be told in words; some models see for themselves. */
  get inWords() {
    return this.limits?.vision?.kind !== 'model';
  }

  /** How many pictures a second are sent: as many as the user wants, and no more than the server looks at. */
  rate(settings) {
    return Math.min(settings.cameraRate, this.limits?.max_fps ?? Infinity);
  }

  // -- what it is called

  /** off, asking, lost; with the camera on: muted, frozen, dark, alone (not connected), asked or looked_at. `dark`: what the
   * server saw last was dark. `hidden`: nobody sees the page, so that it gets no pictures to show. */
  state(now, dark = false, hidden = false) {
    if (!this.on) return this.phase;
    if (this.muted) return 'muted';
    if (!hidden && now - this.pictureAt > FROZEN_MS) return 'frozen';
    if (this.server === 'none') return 'alone';
    if (this.server === 'asked') return 'asked';
    return dark ? 'dark' : 'looked_at';
  }
}

const WORDS = {
  off: 'off',
  asking: 'waiting for your permission',
  lost: 'gone',
  muted: 'gives no picture: is its shutter closed, or is it switched off on the device?',
  frozen: 'the picture stands still, and nothing of it is sent',
  dark: 'the picture is dark, or the camera is covered',
  alone: 'on; only you see it, nothing is sent before you connect',
  asked: 'on; asking the server to look',
  looked_at: 'on; the server looks',
};

/** A state in words, after the name of the source. */
export function stateInWords(state, source) {
  const name = source === 'screen' ? 'Screen' : 'Camera';
  return `${name}: ${WORDS[state]}`;
}

/** `session.extensions.video` of an update that asks the server to look. `rated`: with the user's rate; else the server chooses. */
export function videoOf(settings, rated = true) {
  const video = { report: true, commentary: settings.commentary };
  return rated ? { max_fps: settings.cameraRate, ...video } : video;
}

/** Constraints for getUserMedia or getDisplayMedia. The preview runs faster than what is sent. */
export function constraintsOf(settings, source) {
  const [width, height] = settings.cameraSize.split('x').map(Number);
  const frameRate = { ideal: Math.max(15, settings.cameraRate), max: 30 };
  if (source === 'screen') return { width: { max: 1920 }, height: { max: 1080 }, frameRate: { ideal: 10, max: 15 } };
  const wanted = { width: { ideal: width }, height: { ideal: height }, frameRate };
  if (settings.camera !== '') wanted.deviceId = { exact: settings.camera };
  return wanted;
}

/** The codecs to offer: VP8, which the server decodes, with what repairs its losses; everything where there is no VP8. */
export function videoCodecs(known) {
  const named = (name) => known.filter(({ mimeType }) => mimeType.toLowerCase() === `video/${name}`);
  const vp8 = named('vp8');
  return vp8.length === 0 ? known : [...vp8, ...named('rtx')];
}
