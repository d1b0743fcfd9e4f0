"""Options of `vllm.thinker`, checked. Lengths are tokens.

`engine` holds vLLM's own arguments (AsyncEngineArgs) for what is not an option here, as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from engines.options import Place, Read, Text, Within, WrongOption, by_type

_OURS = frozenset(
    {"model", "max_num_seqs", "max_model_len", "scheduler_cls", "scheduling_policy", "enable_prefix_caching", "dtype",
     "max_num_batched_tokens", "structured_outputs_config"}
)  # fmt: skip
Examples: TypeAlias = tuple[tuple[str, str], ...]


def _examples(value: object) -> Examples:
    pairs = value if isinstance(value, list) else None
    if pairs is None or not all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)
        for pair in pairs
    ):
        raise ValueError("must be a list of [what the user says, what is answered]")
    return tuple((user, answer) for user, answer in pairs)


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """`model`: a folder, or a name that the hub cache knows; `smollm2-135m-instruct` is the one that `engines.vllm.convert` makes.

    `answers`: how many take part in a step at once. `context`: longest prompt and answer together. `batched_tokens`: prompt and
    answer tokens of one step; smaller keeps steps short while long prompts are read. `pacing`: `scheduler` (our scheduler class:
    holds, urgency, places taken from the less urgent) or `lease` (public interface only: an answer is lent tokens, no urgency
    after its start) or `none` (vLLM as it comes: answers run to their end). `short_answers`: spoken answers end with a sentence after about 30 tokens, unless a long one was asked
    for; for small models that ramble. `examples`: (user, assistant) pairs after the system message. `system_role` false: for templates
    without one, the instructions open the first user message. `cpu_kv_gb`: memory for keys and
    values on CPU, whole GiB. `threads`: OpenMP threads on CPU.
    """

    model: Place = ""
    system_role: bool = True
    answers: Annotated[int, Within(1, 4096)] = 8
    context: Annotated[int, Within(256, 10_000_000)] = 2048
    batched_tokens: Annotated[int, Within(32, 1_000_000)] | None = None
    dtype: Text = "auto"
    pacing: Literal["scheduler", "lease", "none"] = "scheduler"
    max_tokens: Annotated[int, Within(1, 1_000_000)] = 400
    short_answers: bool = False
    temperature: Annotated[float, Within(0.0, 2.0)] = 0.0
    top_p: Annotated[float, Within(0.01, 1.0)] = 1.0
    repetition_penalty: Annotated[float, Within(0.5, 2.0)] = 1.0
    examples: Annotated[Examples, Read(_examples)] = ()
    template_options: Mapping[str, object] = field(default_factory=dict)
    own_process: bool = True
    cpu_kv_gb: Annotated[int, Within(1, 4096)] = 1
    threads: Annotated[int, Within(1, 1024)] = 1
    any_version: bool = False
    engine: Mapping[str, object] = field(default_factory=dict)

    @property
    def longest_answer(self) -> int:
        """Tokens kept free behind a prompt."""
        return min(self.max_tokens, self.context * 3 // 8)


def read_options(options: Mapping[str, object]) -> VllmOptions:
    """Raises WrongOption."""
    read = by_type(options, VllmOptions())
    if not read.model:
        raise WrongOption("model", "missing; a folder with the weights, or smollm2-135m-instruct")
    taken = sorted(_OURS & read.engine.keys())
    if taken:
        raise WrongOption(
            f"engine.{taken[0]}", "has an option of its own, or is this server's to set"
        )
    return read
