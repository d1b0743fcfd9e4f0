"""A conversation as what vllm-omni is asked: tokens, sounds, and the voice to answer in.

The conversation is rendered by `engines.omni.chat`, as for the transformers engines. There a sound takes its own number of
tokens; vllm-omni wants one in its place and counts itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from engines.base import ThinkJob
from engines.omni.chat import QWEN3, Chat
from engines.vllm_omni.options import ThinkerOptions
from session_server.types.audio import INPUT_RATE

_HOP = 160
_LEAST = INPUT_RATE // 10
"""Shorter sounds are padded: the encoder's convolutions need some frames."""


class Prompts:
    """Renders jobs. `window`: of the model's audio tower."""

    def __init__(self, options: ThinkerOptions, window: int) -> None:
        self._options = options
        self._window = window
        self._most = options.sound_s * INPUT_RATE
        self._chat = Chat(Path(options.weights), QWEN3, self._sound_tokens)

    def forced(self, job: ThinkJob) -> str:
        """How an answer begins that has to be a call; empty: it need not be one."""
        return self._chat.forced_call(job)

    def render(self, job: ThinkJob, voice: str) -> tuple[dict[str, Any], int]:
        """What AsyncOmni is asked, and how many tokens it is; a forced call's opening is the end of it. Raises ValueError for what
        can never fit."""
        room = self._options.context - self._options.longest_answer - 1
        prompt = self._chat.render(job, room)
        tokens, at = [], 0
        for place, count, _ in prompt.sounds:
            tokens += prompt.tokens[at : place + 1]
            at = place + count
        opening = self._chat.encode(self.forced(job))
        tokens += prompt.tokens[at:] + opening
        asked: dict[str, Any] = {
            "prompt_token_ids": tokens,
            "additional_information": {"speaker": [voice]},
        }
        if prompt.sounds:
            sounds = [(self._samples(pcm), INPUT_RATE) for _, _, pcm in prompt.sounds]
            asked["multi_modal_data"] = {"audio": sounds}
        return asked, len(prompt) + len(opening)

    def _samples(self, pcm: bytes) -> np.ndarray[Any, np.dtype[np.float32]]:
        samples = np.frombuffer(pcm, "<i2")[-self._most :].astype(np.float32) / 32768
        return np.pad(samples, (0, max(0, _LEAST - len(samples))))

    def _sound_tokens(self, pcm: bytes) -> int:
        """How many tokens the model makes of it: 13 of each full window of its tower, fewer of the rest."""
        frames = max(_LEAST, min(len(pcm) // 2, self._most)) // _HOP
        full, rest = divmod(frames, 2 * self._window)
        halved = (rest - 1) // 2 + 1
        return ((halved - 1) // 2 + 1 - 1) // 2 + 1 + full * 13
