// The table of turns: how long each leg took, newest first.

import { LEGS, breakdown, medianTotal } from '../model/turns.js';
import { make } from './dom.js';

const SHOWN = 30;
const FULL_MS = 2000;

export class LatencyView {
  constructor(body, summary) {
    this.body = body;
    this.summary = summary;
    this.version = -1;
  }

  draw(turns) {
    if (turns.version === this.version) return;
    this.version = turns.version;
    const median = medianTotal(turns.turns);
    this.summary.textContent = median === null ? 'no answers yet' : `median ${Math.round(median)} ms`;
    this.body.replaceChildren(...turns.turns.slice(-SHOWN).reverse().map(row));
  }
}

function row(turn) {
  const { legs, total } = breakdown(turn);
  const cell = (value) => make('td', {}, value === null ? '–' : String(Math.round(value)));
  const bar = make('div', { className: 'legs', 'aria-hidden': 'true' });
  for (const leg of LEGS) {
    if (legs[leg] === null) continue;
    const part = make('span', { className: `leg ${leg}` });
    part.style.width = `${Math.min(100, (100 * legs[leg]) / FULL_MS)}%`;
    bar.append(part);
  }
  const heading = make('th', { scope: 'row' }, turn.interrupted ? `${turn.number} ✂` : String(turn.number));
  if (turn.interrupted) heading.title = 'interrupted';
  return make('tr', {}, heading, ...LEGS.map((leg) => cell(legs[leg])), make('td', { className: 'total' }, total === null ? '–' : String(Math.round(total))),
    make('td', { className: 'bar' }, bar));
}
