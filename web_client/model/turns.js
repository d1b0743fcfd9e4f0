// Where the time of each turn went: from the user's last sound to the first sound of the answer.
//
// Legs, in order: `noticed` (the server decided that the turn is over), `thought` (first words of the answer), `spoke` (first
// audio here), `arrived` (audible). A leg is the time since the latest instant before it that is known; they add up to the
// total. Pure; milliseconds of the page's clock.

const MAX_TURNS = 200;
export const LEGS = ['noticed', 'thought', 'spoke', 'arrived'];

export class Turns {
  constructor() {
    this.turns = [];
    this.count = 0;
    this.waiting = null;
    this.byResponse = new Map();
    this.version = 0;
  }

  /** The user has finished; `voiced`: when they were last audible, null: not known. */
  ended(at, voiced) {
    this.waiting = this.begin(voiced !== null && voiced < at ? voiced : at);
    this.waiting.noticed = at;
  }

  /** A typed turn. */
  typed(at) {
    this.waiting = this.begin(at);
    this.waiting.noticed = at;
  }

  begin(at) {
    return { number: 0, start: at, noticed: null, thought: null, spoke: null, arrived: null, interrupted: false };
  }

  /** A response began; it answers the turn that waits. */
  answered(responseId) {
    if (this.waiting === null) return;
    const turn = this.waiting;
    this.waiting = null;
    turn.number = ++this.count;
    this.turns.push(turn);
    this.byResponse.set(responseId, turn);
    if (this.turns.length > MAX_TURNS) {
      const gone = this.turns.shift();
      for (const [id, known] of this.byResponse) if (known === gone) this.byResponse.delete(id);
    }
    this.version++;
  }

  /** A leg of a response's turn is over; the first time counts. Returns the turn if that was news. */
  reach(responseId, leg, at) {
    const turn = this.byResponse.get(responseId);
    if (turn === undefined || turn[leg] !== null) return null;
    turn[leg] = at;
    this.version++;
    return turn;
  }

  interrupted(responseId) {
    const turn = this.byResponse.get(responseId);
    if (turn === undefined) return;
    turn.interrupted = true;
    this.version++;
  }
}

/** The legs of a turn in milliseconds (null: not known), and their sum. */
export function breakdown(turn) {
  const legs = {};
  let last = turn.start;
  for (const leg of LEGS) {
    const at = turn[leg];
    legs[leg] = at === null ? null : Math.max(0, at - last);
    if (at !== null) last = Math.max(last, at);
  }
  return { legs, total: turn.arrived === null ? null : Math.max(0, turn.arrived - turn.start) };
}

/** The median of the totals that are known; null: none. */
export function medianTotal(turns) {
  const totals = turns.map((turn) => breakdown(turn).total).filter((total) => total !== null).sort((a, b) => a - b);
  if (totals.length === 0) return null;
  const middle = totals.length >> 1;
  return totals.length % 2 === 1 ? totals[middle] : (totals[middle - 1] + totals[middle]) / 2;
}
