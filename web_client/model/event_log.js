// Every event that went over the wire, newest last, bounded in number and in size. Audio is not kept, only its length;
// keys are not kept at all. Pure; milliseconds.

const MAX_EVENTS = 3000;
const LONG = 400;
const JOIN_MS = 1000;
const FREQUENT = new Set(['input_audio_buffer.append', 'response.output_audio.delta', 'input_image_buffer.append']); // one entry a second
const HIDDEN = new Set(['value', 'client_secret', 'resume_token']);

export class EventLog {
  constructor(limit = MAX_EVENTS) {
    this.limit = limit;
    this.entries = [];
    this.frequent = new Map(); // type -> its newest entry
    this.count = 0;
    this.version = 0;
  }

  /** `direction`: `in` (from the server) or `out`. */
  add(direction, event, at) {
    if (FREQUENT.has(event.type) && this.joined(event, at)) return;
    const entry = { number: ++this.count, direction, at, type: String(event.type), event: shorten(event), times: 1 };
    if (FREQUENT.has(event.type)) this.frequent.set(event.type, entry);
    this.entries.push(entry);
    if (this.entries.length > this.limit * 1.1) this.entries = this.entries.slice(-this.limit);
    this.version++;
  }

  /** Whether it went into the entry of the last second. */
  joined(event, at) {
    const entry = this.frequent.get(event.type);
    if (entry === undefined || at - entry.at >= JOIN_MS) return false;
    entry.times++;
    return true;
  }

  clear() {
    this.entries = [];
    this.frequent.clear();
    this.version++;
  }

  /** The newest `limit` entries whose content holds every word of `filter`; `-word` excludes; `in` and `out` mean the direction. */
  matching(filter, limit = 300) {
    const words = filter.toLowerCase().split(/\s+/).filter((word) => word !== '' && word !== '-');
    if (words.length === 0) return this.entries.slice(-limit);
    const found = [];
    for (let k = this.entries.length - 1; k >= 0 && found.length < limit; k--) {
      const { direction, event } = this.entries[k];
      const text = JSON.stringify(event).toLowerCase();
      const holds = (word) => (['in', 'out'].includes(word) ? direction === word : text.includes(word));
      const fits = words.every((word) => (word.startsWith('-') ? !holds(word.slice(1)) : holds(word)));
      if (fits) found.push(this.entries[k]);
    }
    return found.reverse();
  }

  /** One JSON object a line. */
  exported() {
    return this.entries.map(({ at, direction, event, times }) => JSON.stringify({ at_ms: Math.round(at), direction, event, times })).join('\n');
  }
}

/** A copy that is small: audio as its length, long texts cut. */
export function shorten(value, key = '') {
  if (HIDDEN.has(key)) return '(hidden)';
  if (typeof value === 'string') {
    if (key === 'audio' || (key === 'delta' && value.length > 200) || key === 'image') return `(${value.length} characters)`;
    return value.length > LONG ? `${value.slice(0, LONG)}… (${value.length} characters)` : value;
  }
  if (Array.isArray(value)) return value.slice(0, 50).map((entry) => shorten(entry));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([name, entry]) => [name, shorten(entry, name)]));
}
