// What the server saw through the camera, by `input_image_buffer.seen`: the newest evidence, its age, counts, and its words.
//
// Invariants: evidence is never replaced by an older one; one is kept, and one for the text read (text is read less often than
// objects are looked for). What is not sure is marked as such in every wording. Pure; milliseconds of the page's clock.

const TEXT_MS = 16000; // the server forgets the whole of an evidence after as long
const SHOWN_MS = 12000; // two heartbeats and a little: boxes beyond that are not drawn
const NEWS_MS = 8000;
const MOST = 50;

export class Sight {
  constructor() {
    this.version = 0;
    this.clear();
  }

  /** Nothing of before counts any more: the camera was switched, or the server forgot. */
  clear() {
    this.counts = { change: 0, heartbeat: 0, forced: 0 };
    this.newest = null; // { at, reason, objects, colours, light, width, height }
    this.text = null; // { at, lines }
    this.told = '';
    this.toldAt = -Infinity;
    this.version++;
  }

  /** `at`: when the picture was taken. */
  take({ reason, seen }, at) {
    if (seen === null || typeof seen !== 'object') return;
    if (reason in this.counts) this.counts[reason]++;
    this.version++;
    if (this.newest !== null && at < this.newest.at) return;
    const objects = (seen.objects ?? []).filter(({ box }) => Array.isArray(box) && box.length === 4).slice(0, MOST);
    this.newest = {
      at, reason, objects, colours: seen.colours ?? [], light: seen.light ?? 'normal', width: seen.width ?? 0, height: seen.height ?? 0,
    };
    if (Array.isArray(seen.texts)) this.text = { at, lines: seen.texts.slice(0, MOST) };
  }

  get looks() {
    return this.counts.change + this.counts.heartbeat + this.counts.forced;
  }

  get dark() {
    return this.newest?.light === 'dark';
  }

  /** Milliseconds since the picture that was looked at last was taken; null: none was. */
  age(now) {
    return this.newest === null ? null : Math.max(0, now - this.newest.at);
  }

  /** What may be drawn over the picture now: objects, and how strongly (0 to 1). */
  overlay(now) {
    const age = this.age(now);
    if (age === null || age > SHOWN_MS || this.dark) return { objects: [], strength: 0 };
    return { objects: this.newest.objects, strength: age <= 1500 ? 1 : 0.6 };
  }

  /** The text that was read, unless that is too long ago. */
  read(now) {
    return this.text === null || now - this.text.at > TEXT_MS ? null : this.text;
  }

  /** What was seen, in words; '' if nothing was. `inWords` false: the model sees for itself, and says nothing of it. */
  words(now, inWords = true) {
    if (this.newest === null) return '';
    if (!inWords) return 'The model looked at the picture itself; what it saw is not known in words.';
    if (this.dark) return 'The picture is dark or covered; nothing can be made out.';
    const { objects, colours, light } = this.newest;
    const sure = counted(objects.filter((one) => one.sure).map((one) => one.kind));
    const known = new Set(objects.filter((one) => one.sure).map((one) => one.kind));
    const unsure = [...new Set(objects.filter((one) => !one.sure && !known.has(one.kind)).map((one) => one.kind))];
    const parts = [`Seen: ${sure.join(', ') || 'none of the things that it knows'}.`];
    if (unsure.length > 0) parts.push(`Not sure: ${unsure.join(', ')}.`);
    const text = this.read(now);
    if (text !== null && text.lines.length > 0) parts.push(`Text read: ${text.lines.map((line) => `“${line}”`).join(', ')}${later(this.newest.at - text.at)}.`);
    if (light !== 'normal') parts.push(`Light: ${light}.`);
    if (colours.length > 0) parts.push(`Colours: ${colours.join(', ')}.`);
    return parts.join(' ');
  }

  /** What a screen reader should say now, or null: things and text that are news, not too often. */
  news(now, inWords = true) {
    if (this.newest === null || !inWords || now - this.toldAt < NEWS_MS) return null;
    const text = this.read(now);
    const sure = counted(this.newest.objects.filter((one) => one.sure).map((one) => one.kind));
    const lines = text?.lines ?? [];
    const what = this.dark ? 'the picture is dark or covered' : [...sure, ...lines.map((line) => `text “${line}”`)].join(', ');
    if (what === this.told) return null;
    this.told = what;
    this.toldAt = now;
    return `The agent sees: ${what || 'nothing that it knows'}`;
  }
}

const later = (ms) => (ms < 1000 ? '' : ` (${Math.round(ms / 1000)} s before)`);

/** An age in words. */
export const ageInWords = (ms) => (ms < 1000 ? 'now' : `${Math.round(ms / 1000)} s ago`);

/** Kinds with their number: "2 × person", sorted as they came. */
export function counted(kinds) {
  const numbers = new Map();
  for (const kind of kinds) numbers.set(kind, (numbers.get(kind) ?? 0) + 1);
  return [...numbers].map(([kind, number]) => (number === 1 ? kind : `${number} × ${kind}`));
}
