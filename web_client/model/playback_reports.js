// What the server is told of our playback: `playback.ack` events out of the ring's reports.
//
// A sample that left the ring is heard `latency` later. Invariants: counts never fall; one final report a part, after the
// last of it was heard, or at once when it was cut (what had left the ring will still be heard). Pure. Milliseconds, and
// samples at `rate`.

export const keyOf = (responseId, itemId, contentIndex) => `${responseId}|${itemId}|${contentIndex}`;

export const responseOf = (key) => key.split('|')[0];

export class PlaybackReports {
  constructor(rate = 24000, intervalMs = 100) {
    this.rate = rate;
    this.intervalMs = intervalMs;
    this.acked = new Map(); // key -> { heard, at, underruns, missing, dry }
    this.ending = []; // complete parts whose last samples are still on their way to the ear
  }

  /** News for the server and for the page. `latencyMs`: what the sound card adds. */
  take(report, latencyMs, now) {
    const news = { acks: [], begun: [], gaps: [] };
    for (const part of report.ended) {
      this.gapOf(part, news, false);
      this.ending.push({ part, at: part.cut ? now : now + latencyMs });
    }
    const due = this.ending.filter((end) => end.at <= now);
    this.ending = this.ending.filter((end) => end.at > now);
    for (const { part } of due) this.finish(part, news);
    if (report.playing !== null) this.progress(report.playing, latencyMs, now, news);
    return news;
  }

  /** When `take` has something to say though the ring has not: the last samples of a part reach the ear. Null: never. */
  get due() {
    return this.ending.length === 0 ? null : Math.min(...this.ending.map((end) => end.at));
  }

  progress(part, latencyMs, now, news) {
    const heard = Math.max(0, part.played - Math.round((latencyMs * this.rate) / 1000));
    const last = this.gapOf(part, news, true);
    if (heard <= last.heard) return;
    const first = last.heard === 0;
    const ranDry = part.dry && !last.dryTold;
    if (first) news.begun.push({ responseId: responseOf(part.key), at: now - ((heard * 1000) / this.rate) });
    if (!first && !ranDry && now - last.at < this.intervalMs) return;
    Object.assign(last, { heard, at: now, dryTold: part.dry });
    news.acks.push(this.ack(part, heard, false));
  }

  finish(part, news) {
    const last = this.acked.get(part.key);
    this.acked.delete(part.key);
    if (part.played > 0 && (last === undefined || last.heard === 0)) {
      news.begun.push({ responseId: responseOf(part.key), at: null });
    }
    news.acks.push(this.ack(part, part.played, true));
  }

  /** Underruns as they begin and end; the record of this part. */
  gapOf(part, news, keep) {
    const last = this.acked.get(part.key) ?? { heard: 0, at: -Infinity, missing: 0, dry: false, dryTold: false };
    if (keep || this.acked.has(part.key)) this.acked.set(part.key, last);
    if (part.missing > last.missing && !part.dry) {
      news.gaps.push({ responseId: responseOf(part.key), ms: ((part.missing - last.missing) * 1000) / this.rate });
      last.missing = part.missing;
    }
    return last;
  }

  ack(part, heard, final) {
    const [response_id, item_id, content] = part.key.split('|');
    return {
      type: 'playback.ack', response_id, item_id, content_index: Number(content), played_samples: heard,
      buffered_ms: part.cut ? 0 : Math.round(((part.received - heard) * 1000) / this.rate),
      underruns: part.underruns, underrun_ms: Math.round((part.missing * 1000) / this.rate), final,
    };
  }
}
