// The camera between the user, the server and the connection: on and off, asked and granted, by track or by events.
//
// Invariants: nothing of a picture leaves before the server said that it looks (`session.updated`); a camera that is off is free;
// what a camera that is no longer ours says is ignored.

import { CameraState, videoOf } from '../model/camera_state.js';
import { Fault } from '../model/faults.js';
import { Camera } from './camera.js';
import { FrameSender } from './frame_sender.js';

const POLL_MS = 100;

export class CameraFeed {
  /** `changed()`: something is to be shown anew; `forget()`: what was seen is of another picture. */
  constructor(changed, forget) {
    this.changed = changed;
    this.forget = forget;
    this.state = new CameraState();
    this.camera = new Camera({
      onEnded: () => this.ended(),
      onMuted: (on) => {
        this.state.mute(on);
        this.changed();
      },
      onPicture: () => this.state.picture(performance.now()),
    });
    this.connection = null; // an open one
    this.sender = null;
    this.ticket = null;
  }

  /** `source`: camera or screen. Never throws, see `state.fault`. */
  async turnOn(source, settings) {
    const ticket = (this.ticket = {});
    this.stopSending();
    this.settings = settings;
    this.state.ask(source);
    this.changed();
    try {
      await this.camera.open(source, settings);
      if (this.ticket !== ticket) return;
      this.state.opened(performance.now());
      this.timer = setInterval(() => this.camera.poll(), POLL_MS);
      this.forget();
      this.askServer();
    } catch (error) {
      if (this.ticket !== ticket) return;
      this.turnOff(error instanceof Fault ? error : new Fault('internal', `${error.name}: ${error.message}`));
    }
    this.changed();
  }

  /** Switch it off; `fault`: why. */
  turnOff(fault = null) {
    this.ticket = null;
    this.release();
    this.state.off(fault);
    this.changed();
  }

  ended() {
    const screen = this.state.source === 'screen';
    this.release();
    if (screen) this.state.off(); // the browser's own button ends a shared screen
    else this.state.lost(new Fault('camera_lost'));
    this.changed();
  }

  release() {
    const told = this.state.server === 'asked' || this.state.server === 'looks';
    this.stopSending();
    clearInterval(this.timer);
    this.camera.close();
    this.forget();
    if (told) this.connection?.send({ type: 'session.update', session: { type: 'realtime', extensions: { video: null } } });
  }

  // -- the server

  /** A connection is open. */
  attach(connection) {
    this.connection = connection;
    this.askServer();
  }

  /** The connection is over; the camera stays as it is. */
  detach() {
    this.stopSending();
    this.connection = null;
    this.state.forgetServer();
  }

  askServer(rated = true) {
    if (this.connection === null || !this.state.on) return;
    const video = videoOf(this.settings, rated);
    this.connection.send({ type: 'session.update', event_id: this.state.askServer(), session: { type: 'realtime', extensions: { video } } });
  }

  /** An event of the server. Returns whether it was the camera's alone. */
  take(event) {
    if (event.type === 'session.updated') {
      const before = this.state.sends;
      this.state.granted(event.session);
      if (this.state.sends && !before) this.startSending();
    } else if (event.type === 'error') {
      const refused = this.state.refusal(event.error);
      if (refused === null) return false;
      if (refused === 'rate') {
        this.askServer(false);
        return true;
      }
      if (refused === 'camera_blind') this.state.forgetServer(); // there is nothing to switch off
      this.turnOff(new Fault(refused, event.error.message));
      return true;
    }
    return false;
  }

  // -- pictures

  startSending() {
    const { track } = this.camera;
    const { connection } = this;
    if (connection.takesVideo) void this.byTrack(connection, track);
    else this.sender = new FrameSender(this.camera, connection, this.state.rate(this.settings), this.state.limits.max_bytes ?? Infinity);
  }

  stopSending() {
    this.sender?.stop();
    this.sender = null;
    if (this.connection?.takesVideo) void this.byTrack(this.connection, null);
  }

  async byTrack(connection, track) {
    try {
      await connection.showCamera(track, this.state.rate(this.settings));
    } catch (error) {
      if (connection === this.connection && track !== null) this.turnOff(new Fault('internal', `${error.name}: ${error.message}`));
    }
  }

  /** New settings of the camera. */
  async apply(settings, name) {
    this.settings = settings;
    if (!this.state.on) return;
    const reopen = name === 'camera' || name === 'cameraSize';
    if (reopen && this.state.source === 'camera') {
      await this.turnOn('camera', settings);
    } else if (name === 'cameraRate' || name === 'commentary') {
      this.stopSending();
      this.askServer();
    }
  }
}
