// The list of raw events: filter, look into one, export.

import { make } from './dom.js';

const SHOWN = 200;

export class LogView {
  constructor({ list, filter, count, pause, exportButton, clear }, log) {
    this.list = list;
    this.filter = filter;
    this.count = count;
    this.pause = pause;
    this.log = log;
    this.key = '';
    this.shown = new Map(); // number of an entry -> its element: one that is open stays open
    exportButton.addEventListener('click', () => this.download());
    clear.addEventListener('click', () => log.clear());
    this.panel = list.closest('details');
  }

  draw() {
    const key = `${this.log.version}|${this.filter.value}`;
    if (!this.panel.open || this.pause.checked || key === this.key) return;
    this.key = key;
    const found = this.log.matching(this.filter.value, SHOWN);
    this.count.textContent = `${found.length} shown, ${this.log.entries.length} kept`;
    const atEnd = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 40;
    this.place(found.map((entry) => this.elementOf(entry)));
    if (atEnd) this.list.scrollTop = this.list.scrollHeight;
  }

  elementOf(entry) {
    let element = this.shown.get(entry.number);
    if (element === undefined) {
      element = made(entry);
      this.shown.set(entry.number, element);
    }
    if (entry.times > 1) element.querySelector('.times').textContent = ` × ${entry.times}`;
    return element;
  }

  /** Exactly these, in this order; what is there already is not touched. */
  place(elements) {
    const wanted = new Set(elements);
    for (const [number, element] of this.shown) {
      if (wanted.has(element)) continue;
      element.remove();
      this.shown.delete(number);
    }
    let next = this.list.firstElementChild;
    for (const element of elements) {
      if (element === next) next = next.nextElementSibling;
      else this.list.insertBefore(element, next);
    }
  }

  download() {
    const url = URL.createObjectURL(new Blob([this.log.exported()], { type: 'application/x-ndjson' }));
    const name = `session-${new Date().toISOString().replace(/[:.]/g, '-')}.jsonl`;
    make('a', { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
}

function made({ direction, at, type, event }) {
  const details = make('details', {}, make('summary', {},
    make('span', { className: 'time' }, (at / 1000).toFixed(3)),
    make('span', { className: `arrow ${direction}`, title: direction === 'in' ? 'from the server' : 'to the server' }, direction === 'in' ? '↓' : '↑'),
    ` ${type}`, make('span', { className: 'times' })));
  details.addEventListener('toggle', () => {
    if (details.open && details.children.length === 1) details.append(make('pre', {}, JSON.stringify(event, null, 2)));
  });
  return make('li', { className: type === 'error' ? 'error' : '' }, details);
}
