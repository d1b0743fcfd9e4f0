// The form of settings: shows, reads and remembers them. The key is kept for this tab only.

import { DEFAULTS, VOICES, restore } from '../model/settings.js';
import { find, make } from './dom.js';

const STORE = 'session-server settings';
const KEY = 'session-server key';
const FIELDS = Object.keys(DEFAULTS);
const DEVICES = ['microphone', 'camera'];

export class SettingsView {
  /** `changed(settings, name)`: after every change by the user. */
  constructor(form, changed) {
    this.form = form;
    this.settings = restore(read(localStorage));
    this.key = form.elements.namedItem('key');
    this.key.value = sessionStorage.getItem(KEY) ?? '';
    this.voices(VOICES);
    this.show();
    form.addEventListener('submit', (event) => event.preventDefault());
    document.addEventListener('input', ({ target }) => target.form === form && this.labels());
    document.addEventListener('change', ({ target }) => { // some of its fields stand elsewhere on the page
      if (target.form !== form) return;
      sessionStorage.setItem(KEY, this.key.value);
      this.settings = this.read(target);
      localStorage.setItem(STORE, JSON.stringify(this.settings));
      this.show();
      changed(this.settings, target.name);
    });
  }

  get accessKey() {
    return this.key.value.trim();
  }

  /** A device that is not in its list (nothing is, before the first permission) stays chosen, unless the user chose another. */
  read(changed) {
    const found = {};
    for (const name of FIELDS) {
      const field = this.form.elements.namedItem(name);
      if (DEVICES.includes(name) && field !== changed && field.value === '') found[name] = this.settings[name];
      else found[name] = field.type === 'checkbox' ? field.checked : field.type === 'range' ? Number(field.value) : field.value;
    }
    return restore(found);
  }

  show() {
    for (const name of FIELDS) {
      const field = this.form.elements.namedItem(name);
      if (field.type === 'checkbox') field.checked = this.settings[name];
      else field.value = String(this.settings[name]);
      if (field.selectedIndex === -1) field.value = ''; // a device that is not there now
    }
    for (const part of this.form.querySelectorAll('[data-for]')) part.hidden = part.dataset.for !== this.settings.detection;
    this.labels();
  }

  labels() {
    const value = (name) => Number(this.form.elements.namedItem(name).value);
    find('#speed-value').textContent = `${value('speed').toFixed(2)} ×`;
    find('#threshold-value').textContent = value('threshold').toFixed(2);
    find('#rate-value').textContent = `${value('cameraRate')} a second`;
    find('#silence-value').textContent = `${value('silenceMs')} ms`;
  }

  voices(names) {
    const select = this.form.elements.namedItem('voice');
    const all = [...new Set(names)];
    if (this.settings.voice !== '' && !all.includes(this.settings.voice)) all.push(this.settings.voice);
    select.replaceChildren(make('option', { value: '' }, 'the server’s own'), ...all.map((name) => make('option', { value: name }, name)));
    select.value = this.settings.voice;
  }

  microphones(found) {
    this.devices('microphone', found);
  }

  cameras(found) {
    this.devices('camera', found);
  }

  devices(kind, found) {
    const select = this.form.elements.namedItem(kind);
    const options = [make('option', { value: '' }, 'the system’s choice'), ...found.map(({ id, name }) => make('option', { value: id }, name))];
    select.replaceChildren(...options);
    select.value = found.some(({ id }) => id === this.settings[kind]) ? this.settings[kind] : '';
  }
}

function read(store) {
  try {
    return JSON.parse(store.getItem(STORE));
  } catch {
    return null;
  }
}
