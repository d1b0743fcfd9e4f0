// The words of both sides, line by line, and which of them were heard.
//
// A line of the agent that was cut keeps its whole text: `heard` says how much of it sounded (characters), the rest is struck
// out. Until the server's own answer is there (`retrieved`), that is an estimate by time. Invariants: lines stay in the order
// in which the conversation has them; `heard` of a cut line never exceeds its text. Pure; milliseconds.

const MAX_LINES = 400;
const CHARS_PER_S = 15; // how fast speech is, while nothing better is known

export class Captions {
  constructor() {
    this.lines = [];
    this.byId = new Map();
    this.version = 0; // grows with every change: a view redraws when it differs
  }

  touch(line) {
    this.version++;
    if (line !== undefined) line.version = this.version;
  }

  /** The line of an item; made if it is new. `after`: the item that it follows, null: the first, undefined: the newest. */
  line(id, who, after = undefined) {
    let line = this.byId.get(id);
    if (line !== undefined) return line;
    line = {
      id, who, text: '', final: false, note: '', heard: null, exact: false,
      playedMs: 0, generatedMs: 0, done: false, version: 0,
    };
    const place = after === undefined ? -1 : this.lines.findIndex((other) => other.id === after);
    if (place >= 0) this.lines.splice(place + 1, 0, line);
    else this.lines.push(line);
    this.byId.set(id, line);
    while (this.lines.length > MAX_LINES) this.byId.delete(this.lines.shift().id);
    this.touch(line);
    return line;
  }

  append(id, who, piece) {
    const line = this.line(id, who);
    line.text += piece;
    this.touch(line);
  }

  set(id, who, text) {
    const line = this.line(id, who);
    line.text = text;
    line.final = true;
    this.touch(line);
  }

  note(id, note) {
    const line = this.byId.get(id);
    if (line === undefined || line.note === note) return;
    line.note = note;
    this.touch(line);
  }

  /** No more text of this line comes. */
  finish(id) {
    const line = this.byId.get(id);
    if (line === undefined) return;
    line.done = true;
    this.touch(line);
  }

  /** How far the audio of a line is, by the server's own count. */
  progress(id, playedMs, generatedMs) {
    const line = this.byId.get(id);
    if (line === undefined) return;
    line.playedMs = playedMs;
    line.generatedMs = generatedMs;
    if (line.heard === null) this.touch(line);
  }

  /** The line was cut when `ms` of its audio had been heard. */
  cut(id, ms) {
    const line = this.byId.get(id);
    if (line === undefined || line.exact) return;
    line.playedMs = ms;
    line.heard = wordsUpTo(line.text, spoken(line));
    if (line.note === '') line.note = 'interrupted';
    this.touch(line);
  }

  /** What the server remembers of a cut line, to the word. */
  retrieved(id, text) {
    const line = this.byId.get(id);
    if (line === undefined || line.heard === null) return;
    line.heard = commonPrefix(line.text, text);
    line.exact = true;
    this.touch(line);
  }

  remove(id) {
    const line = this.byId.get(id);
    if (line === undefined) return;
    this.byId.delete(id);
    this.lines.splice(this.lines.indexOf(line), 1);
    this.touch();
  }

  /** The line in pieces of one kind: heard, coming (not heard yet), unheard (never will be). */
  pieces(line) {
    if (line.text === '') return [];
    if (line.who === 'user') return [{ kind: 'heard', text: line.text }];
    if (line.heard !== null) return split(line.text, line.heard, 'unheard');
    return split(line.text, wordsUpTo(line.text, spoken(line)), 'coming');
  }

  /** What was said so far, as items for another session; the agent's words as far as they were heard. */
  history(limit = 20) {
    const said = this.lines
      .map((line) => ({ who: line.who, text: (line.heard === null ? line.text : line.text.slice(0, line.heard)).trim() }))
      .filter((line) => line.text !== '' && line.who !== 'system');
    return said.slice(-limit).map(({ who, text }) => ({
      type: 'message',
      role: who === 'user' ? 'user' : 'assistant',
      content: [{ type: who === 'user' ? 'input_text' : 'output_text', text }],
    }));
  }
}

/** Characters of a line that have sounded, in proportion to the time. */
function spoken(line) {
  if (line.playedMs <= 0) return 0;
  if (line.done && line.generatedMs > 0) {
    return Math.round((line.text.length * Math.min(line.playedMs, line.generatedMs)) / line.generatedMs);
  }
  return Math.round((line.playedMs / 1000) * CHARS_PER_S);
}

/** `count` moved back to the end of a whole word. */
export function wordsUpTo(text, count) {
  if (count >= text.length) return text.length;
  const space = text.slice(0, count + 1).search(/\s\S*$/);
  return space < 0 ? 0 : space;
}

/** How far `text` begins with `part`, not minding white space, in characters of `text`. */
export function commonPrefix(text, part) {
  let at = 0;
  let end = 0;
  for (const char of part) {
    if (/\s/.test(char)) continue;
    while (at < text.length && /\s/.test(text[at])) at++;
    if (!text.startsWith(char, at)) break;
    at += char.length;
    end = at;
  }
  return end;
}

function split(text, count, rest) {
  return [
    { kind: 'heard', text: text.slice(0, count) },
    { kind: rest, text: text.slice(count) },
  ].filter((piece) => piece.text !== '');
}
