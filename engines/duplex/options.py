"""Options of the Moshi engines; read without their packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from engines.options import Place, Text, Within


@dataclass(frozen=True, slots=True)
class MoshiOptions:
    """`folder`: the weights. `threads`: of torch, on a CPU (0: torch's choice). `greedy`: always the likeliest token, whatever the
    temperatures. `turn_gap_ms`: quiet after which an answer is over. `seed`: of the random draws, which all slots share."""

    folder: Place = ""
    device: Text = "cuda"
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    slots: Annotated[int, Within(1, 4096)] = 8
    threads: int = 0
    greedy: bool = False
    temperature: float = 0.8
    text_temperature: float = 0.7
    top_k: int = 250
    top_k_text: int = 25
    turn_gap_ms: Annotated[int, Within(1, 60_000)] = 800
    seed: int = 0

    @property
    def sampling(self) -> dict[str, object]:
        """How tokens are drawn, in moshi's words (`LMGen`)."""
        return {
            "use_sampling": not self.greedy,
            "temp": self.temperature,
            "temp_text": self.text_temperature,
            "top_k": self.top_k,
            "top_k_text": self.top_k_text,
        }
