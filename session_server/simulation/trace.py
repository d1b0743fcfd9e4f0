"""A trace: what the users of one run did, turn by turn, to be done again by simulated users.

Plain data and its form in YAML. Nothing in it is random and nothing tells what was said: lengths and instants only.
Seconds in `_s`, rounded to milliseconds.

    system_tokens: 60
    sessions:
      - start_s: 0.4
        turns:
          - {rest_s: 0.8, speech_s: 2.1, prompt_tokens: 17, answer_tokens: 30, barge_in_s: 1.25}
          - {speech_s: 1.9, prompt_tokens: 15, answer_tokens: 22, nods: [[2.0, 0.4]]}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from session_server.types.errors import ConfigError

MAX_SESSIONS, MAX_TURNS, MAX_TOKENS, MAX_S = 100_000, 100_000, 1_000_000, 86_400.0


@dataclass(frozen=True, slots=True)
class TraceTurn:
    """A question and what became of its answer.

    `rest_s`: from the end of the last answer (or the session's opening) to the first word; nothing for a turn that
    interrupts. `prompt_tokens`: added to the prompt. Counted from the answer's first audible sample: `barge_in_s`, when
    the next turn's first word falls into it; `leave_s`, when the user hangs up; `nods`, (when, how long) the user
    says "mhm". Of an answer that was interrupted, `answer_tokens` were made, and it might have gone on.
    """

    speech_s: float
    prompt_tokens: int
    answer_tokens: int
    rest_s: float = 0.0
    barge_in_s: float | None = None
    leave_s: float | None = None
    nods: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TraceSession:
    """`start_s`: when it opened, from the beginning of the run."""

    start_s: float
    turns: tuple[TraceTurn, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """`system_tokens`: what every prompt begins with."""

    sessions: tuple[TraceSession, ...]
    system_tokens: int = 0

    @property
    def turns(self) -> int:
        return sum(len(session.turns) for session in self.sessions)


def trace_mapping(trace: Trace) -> dict[str, Any]:
    """For YAML; keys that say nothing are left out."""
    return {
        "system_tokens": trace.system_tokens,
        "sessions": [
            {"start_s": round(s.start_s, 3), "turns": [_turn_mapping(turn) for turn in s.turns]}
            for s in trace.sessions
        ],
    }


def _turn_mapping(turn: TraceTurn) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in fields(turn):
        value = getattr(turn, field.name)
        if isinstance(value, tuple):
            value = [[round(at, 3), round(length, 3)] for at, length in value]
        elif isinstance(value, float):
            value = round(value, 3)
        if value not in (None, [], 0.0) or field.name in ("prompt_tokens", "answer_tokens"):
            out[field.name] = value
    return out


def read_trace(content: object, where: str = "trace") -> Trace:
    """Raises ConfigError naming the session, the turn and the key that is wrong."""
    found = _mapping(content, where, {"system_tokens", "sessions"})
    tokens = _whole(found.get("system_tokens", 0), f"{where}: system_tokens")
    listed = _listed(found.get("sessions"), f"{where}: sessions", MAX_SESSIONS)
    return Trace(
        tuple(_session(one, f"{where}: session {number}") for number, one in enumerate(listed, 1)),
        tokens,
    )


def _session(content: object, where: str) -> TraceSession:
    found = _mapping(content, where, {"start_s", "turns"})
    turns = _listed(found.get("turns"), f"{where}: turns", MAX_TURNS)
    read = tuple(_turn(turn, f"{where}, turn {number}") for number, turn in enumerate(turns, 1))
    if read[-1].barge_in_s is not None:
        raise ConfigError(f"{where}, turn {len(read)}: barge_in_s: no turn follows to interrupt it")
    return TraceSession(_seconds(found.get("start_s", 0.0), f"{where}: start_s"), read)


def _turn(content: object, where: str) -> TraceTurn:
    found = _mapping(content, where, {field.name for field in fields(TraceTurn)})
    for key in ("speech_s", "prompt_tokens", "answer_tokens"):
        if key not in found:
            raise ConfigError(f"{where}: {key}: is missing")
    barge_in, leave = found.get("barge_in_s"), found.get("leave_s")
    return TraceTurn(
        speech_s=_seconds(found["speech_s"], f"{where}: speech_s", least=0.032),
        prompt_tokens=_whole(found["prompt_tokens"], f"{where}: prompt_tokens", least=1),
        answer_tokens=_whole(found["answer_tokens"], f"{where}: answer_tokens", least=1),
        rest_s=_seconds(found.get("rest_s", 0.0), f"{where}: rest_s"),
        barge_in_s=None if barge_in is None else _seconds(barge_in, f"{where}: barge_in_s"),
        leave_s=None if leave is None else _seconds(leave, f"{where}: leave_s"),
        nods=_nods(found.get("nods", ()), f"{where}: nods"),
    )


def _nods(content: object, where: str) -> tuple[tuple[float, float], ...]:
    if not isinstance(content, Sequence) or isinstance(content, str) or len(content) > MAX_TURNS:
        raise ConfigError(f"{where}: must be a list of [when, how long]")
    nods = []
    for nod in content:
        if not isinstance(nod, Sequence) or isinstance(nod, str) or len(nod) != 2:
            raise ConfigError(f"{where}: must be a list of [when, how long]")
        nods.append((_seconds(nod[0], where), _seconds(nod[1], where, least=0.032)))
    return tuple(nods)


def _mapping(content: object, where: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise ConfigError(f"{where}: must be a mapping")
    for key in content:
        if key not in known:
            raise ConfigError(f"{where}: {key}: unknown key; there are {', '.join(sorted(known))}")
    return content


def _listed(content: object, where: str, most: int) -> Sequence[object]:
    if not isinstance(content, Sequence) or isinstance(content, str) or not content:
        raise ConfigError(f"{where}: must be a list that is not empty")
    if len(content) > most:
        raise ConfigError(f"{where}: more than {most}")
    return content


def _seconds(value: object, where: str, least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where}: must be a number of seconds, not {value!r}")
    if not least <= value <= MAX_S:
        raise ConfigError(f"{where}: {value:g} is not within {least:g} and {MAX_S:g}")
    return float(value)


def _whole(value: object, where: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{where}: must be a whole number, not {value!r}")
    if not least <= value <= MAX_TOKENS:
        raise ConfigError(f"{where}: {value} is not within {least} and {MAX_TOKENS}")
    return value
