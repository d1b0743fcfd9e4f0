// What happened when: spans on lanes, marks, and samples of the playback frontier.
//
// Lanes: `user` (speech), `think`, `reply` (audible), `duck` (held back), `gap` (underrun). Marks: `barge_in`, `latency`, `error`,
// `connection`. Invariants: at most one span a lane is open; everything older than KEPT_MS before the newest thing is
// forgotten, so that a page that stays open does not grow. Pure; milliseconds of one clock.

export const KEPT_MS = 10 * 60 * 1000;
const MAX_ENTRIES = 20000;

export class Timeline {
  constructor() {
    this.spans = [];
    this.marks = [];
    this.samples = [];
    this.running = new Map(); // lane -> open span
    this.newest = 0;
  }

  open(lane, at, text = '') {
    this.close(lane, at);
    const span = { lane, from: at, to: null, text };
    this.running.set(lane, span);
    this.spans.push(span);
    this.moved(at);
    return span;
  }

  close(lane, at) {
    const span = this.running.get(lane);
    if (span === undefined) return null;
    span.to = Math.max(span.from, at);
    this.running.delete(lane);
    this.moved(at);
    return span;
  }

  /** A span of which both ends are known. */
  add(lane, from, to, text = '') {
    this.spans.push({ lane, from, to, text });
    this.moved(to);
  }

  mark(kind, at, text) {
    this.marks.push({ kind, at, text });
    this.moved(at);
  }

  /** Where a response's audio stands: milliseconds of it generated, sent and played. */
  frontier(at, id, generated, sent, played) {
    this.samples.push({ at, id, generated, sent, played });
    this.moved(at);
  }

  closeAll(at) {
    for (const lane of [...this.running.keys()]) this.close(lane, at);
  }

  moved(at) {
    this.newest = Math.max(this.newest, at);
    const oldest = this.newest - KEPT_MS;
    this.spans = prune(this.spans, (span) => (span.to ?? this.newest) >= oldest);
    this.marks = prune(this.marks, (mark) => mark.at >= oldest);
    this.samples = prune(this.samples, (sample) => sample.at >= oldest);
  }

  /** What there is between two instants. */
  between(from, to) {
    return {
      spans: this.spans.filter((span) => span.from <= to && (span.to ?? Infinity) >= from),
      marks: this.marks.filter((mark) => mark.at >= from && mark.at <= to),
      samples: this.samples.filter((sample) => sample.at >= from && sample.at <= to),
    };
  }

  /** What was going on at an instant. `reach`: how near a mark has to be. */
  inspect(at, reach) {
    const spans = this.spans.filter((span) => span.from <= at && (span.to ?? this.newest) >= at);
    const marks = this.marks.filter((mark) => Math.abs(mark.at - at) <= reach);
    const before = this.samples.filter((sample) => sample.at <= at).at(-1);
    const sample = before !== undefined && at - before.at < 1000 ? before : null;
    return { at, spans, marks, sample };
  }
}

/** Drop from the front what is no longer kept; cheap when there is nothing to drop. */
function prune(entries, keep) {
  if (entries.length === 0 || (keep(entries[0]) && entries.length <= MAX_ENTRIES)) return entries;
  return entries.filter(keep).slice(-MAX_ENTRIES);
}

const NAMES = { user: 'you speak', think: 'thinking', reply: 'answer audible', duck: 'held back', gap: 'gap in the sound' };

/** One line of words for what `inspect` found; `origin`: the instant that counts as 0. */
export function describe(found, origin) {
  const parts = [`${((found.at - origin) / 1000).toFixed(2)} s`];
  for (const span of found.spans) {
    const length = span.to === null ? 'so far' : `${Math.round(span.to - span.from)} ms`;
    parts.push(`${NAMES[span.lane] ?? span.lane} (${length})`);
  }
  for (const mark of found.marks) parts.push(mark.text);
  if (found.sample !== null) {
    const { generated, sent, played } = found.sample;
    parts.push(`generated ${seconds(generated)}, sent ${seconds(sent)}, played ${seconds(played)}`);
  }
  return parts.join(' · ');
}

const seconds = (ms) => `${(ms / 1000).toFixed(2)} s`;
