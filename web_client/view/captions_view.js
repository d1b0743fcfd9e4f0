// The conversation as text. Lines that did not change keep their element; screen readers hear whole lines only.

import { make } from './dom.js';

const NAMES = { user: 'You', agent: 'Agent', system: '' };

export class CaptionsView {
  constructor(list, announcer) {
    this.list = list;
    this.announcer = announcer;
    this.shown = new Map(); // id -> { element, version }
    this.said = new Set();
    this.version = -1;
    this.atEnd = true;
    list.addEventListener('scroll', () => {
      this.atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
    });
    new ResizeObserver(() => this.follow()).observe(list);
  }

  /** Stay at the newest line, unless the user has gone up. */
  follow() {
    if (this.atEnd) this.list.scrollTop = this.list.scrollHeight;
  }

  draw(captions) {
    if (captions.version === this.version) return;
    this.version = captions.version;
    const live = new Set(captions.lines.map((line) => line.id));
    for (const [id, { element }] of this.shown) {
      if (live.has(id)) continue;
      element.remove();
      this.shown.delete(id);
      this.said.delete(id);
    }
    let before = null;
    for (const line of captions.lines) before = this.place(captions, line, before);
    this.follow();
  }

  place(captions, line, before) {
    let shown = this.shown.get(line.id);
    if (shown === undefined || shown.version !== line.version) {
      const pieces = captions.pieces(line);
      const element = this.render(line, pieces);
      if (shown === undefined) this.list.append(element);
      else shown.element.replaceWith(element);
      shown = { element, version: line.version };
      this.shown.set(line.id, shown);
      this.announce(line, pieces);
    }
    const next = before === null ? this.list.firstElementChild : before.nextElementSibling;
    if (next !== shown.element) this.list.insertBefore(shown.element, next);
    return shown.element;
  }

  render(line, pieces) {
    const text = make('p', { className: 'words', dir: 'auto' });
    if (pieces.length === 0) text.append(make('span', { className: 'pending' }, line.note === '' ? '…' : ''));
    for (const { kind, text: words } of pieces) {
      if (kind === 'unheard') text.append(make('s', { title: 'You did not hear this; the agent does not remember it.' }, words));
      else text.append(make('span', { className: kind }, words));
    }
    const note = line.note === '' ? [] : [make('span', { className: 'note' }, line.note)];
    return make('li', { className: `line ${line.who}`, 'data-id': line.id },
      make('span', { className: 'who' }, NAMES[line.who], ...note), text);
  }

  announce(line, pieces) {
    const whole = line.who === 'user' ? line.final : line.done;
    if (!whole || pieces.length === 0 || this.said.has(line.id)) return;
    this.said.add(line.id);
    const heard = pieces.filter((piece) => piece.kind !== 'unheard').map((piece) => piece.text).join('');
    this.announcer.textContent = `${NAMES[line.who]}: ${heard}`;
  }
}
