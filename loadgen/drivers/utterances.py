"""What simulated users say: lengths and words for scripted engines, no sound.

`turn <n> prompt <tokens> answer <tokens>` is a question that the engines can read (`engines/sim/scripted_stages.py`); "mhm" is a
backchannel, and a false start has no words at all.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from loadgen.users.intents import Kind, ScriptedUtterance
from session_server.simulation.spec import Workload, draw
from session_server.simulation.trace import TraceTurn
from session_server.types.audio import NS_PER_S


@dataclass(frozen=True, slots=True)
class TokenPace:
    """Of a profile: how long a token of an answer sounds, and how many tokens a second of speech is to the thinker."""

    seconds_per_token: float
    input_tokens_per_s: float


class Spelled:
    """Lines of drawn lengths; `turn` spells one of a trace."""

    __slots__ = ("_pace", "_rng", "_said", "_workload")

    def __init__(self, workload: Workload, pace: TokenPace, rng: random.Random) -> None:
        self._workload = workload
        self._pace = pace
        self._rng = rng
        self._said = 0

    def next(self, kind: Kind, length_ns: int | None = None) -> ScriptedUtterance:
        workload, rng = self._workload, self._rng
        match kind:
            case Kind.BACKCHANNEL:
                return self.nod(length_ns or int(draw(workload.backchannel_s, rng) * NS_PER_S))
            case Kind.FALSE_START:
                return ScriptedUtterance(
                    None, 0, int(draw(workload.false_start_s, rng) * NS_PER_S), ""
                )
            case Kind.INTERRUPTION:
                speech_s = draw(workload.barge_speech_s, rng)
            case Kind.QUESTION:
                speech_s = draw(workload.speech_s, rng)
        answer = max(1, int(draw(workload.answer_tokens, rng)))
        prompt = workload.prompt_tokens_least + int(draw(workload.prompt_tokens, rng))
        return self._question(speech_s, prompt, answer)

    def turn(self, turn: TraceTurn) -> ScriptedUtterance:
        return self._question(turn.speech_s, turn.prompt_tokens, turn.answer_tokens)

    def nod(self, length_ns: int) -> ScriptedUtterance:
        return ScriptedUtterance(None, 0, length_ns, "mhm")

    def _question(self, speech_s: float, prompt: int, answer: int) -> ScriptedUtterance:
        self._said += 1
        heard = prompt + int(speech_s * self._pace.input_tokens_per_s)
        words = f"turn {self._said} prompt {heard} answer {answer}"
        answer_ns = int(answer * self._pace.seconds_per_token * NS_PER_S)
        return ScriptedUtterance(None, 0, int(speech_s * NS_PER_S), words, answer_ns)
