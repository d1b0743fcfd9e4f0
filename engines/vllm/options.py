"""Options of `vllm.thinker`, checked. Lengths are tokens.

`engine` holds vLLM's own arguments (AsyncEngineArgs) for what is not an option here, as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from engines.options import number_within, require_known

_OURS = frozenset(
    {"model", "max_num_seqs", "max_model_len", "scheduler_cls", "scheduling_policy", "enable_prefix_caching", "dtype",
     "max_num_batched_tokens", "structured_outputs_config"}
)  # fmt: skip
PACINGS = ("scheduler", "lease", "none")


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

    model: str = ""
    system_role: bool = True
    answers: int = 8
    context: int = 2048
    batched_tokens: int | None = None
    dtype: str = "auto"
    pacing: str = "scheduler"
    max_tokens: int = 400
    short_answers: bool = False
    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    examples: tuple[tuple[str, str], ...] = ()
    template_options: Mapping[str, object] = field(default_factory=dict)
    own_process: bool = True
    cpu_kv_gb: int = 1
    threads: int = 1
    any_version: bool = False
    engine: Mapping[str, object] = field(default_factory=dict)

    @property
    def longest_answer(self) -> int:
        """Tokens kept free behind a prompt."""
        return min(self.max_tokens, self.context * 3 // 8)


_BOUNDS: Mapping[str, tuple[float, float]] = {
    "answers": (1, 4096),
    "context": (256, 10_000_000),
    "batched_tokens": (32, 1_000_000),
    "max_tokens": (1, 1_000_000),
    "temperature": (0.0, 2.0),
    "top_p": (0.01, 1.0),
    "repetition_penalty": (0.5, 2.0),
    "cpu_kv_gb": (1, 4096),
    "threads": (1, 1024),
}
_WHOLE = frozenset({"answers", "context", "batched_tokens", "max_tokens", "cpu_kv_gb", "threads"})
_FLAGS = frozenset({"short_answers", "own_process", "any_version", "system_role"})
_MAPPINGS = frozenset({"template_options", "engine"})


def read_options(options: Mapping[str, object]) -> VllmOptions:
    """Raises ValueError, one line that begins with the option's name."""
    require_known(options, {entry.name for entry in fields(VllmOptions)})
    read = VllmOptions(**{name: _value(name, value) for name, value in options.items()})  # type: ignore[arg-type]
    if not read.model:
        raise ValueError("model: missing; a folder with the weights, or smollm2-135m-instruct")
    if read.pacing not in PACINGS:
        raise ValueError(f"pacing: must be one of {', '.join(PACINGS)}, not {read.pacing!r}")
    taken = sorted(_OURS & read.engine.keys())
    if taken:
        raise ValueError(f"engine.{taken[0]}: has an option of its own, or is this server's to set")
    return read


def _value(name: str, value: object) -> object:
    if name in _BOUNDS:
        return None if name == "batched_tokens" and value is None else _number(name, value)
    if name in _FLAGS and not isinstance(value, bool):
        raise ValueError(f"{name}: must be true or false, not {value!r}")
    if name in _MAPPINGS:
        if not isinstance(value, Mapping):
            raise ValueError(f"{name}: must be a mapping")
        return dict(value)
    if name == "examples":
        return _examples(value)
    if name in ("model", "dtype", "pacing") and (not isinstance(value, str) or not value):
        raise ValueError(f"{name}: must be text, not {value!r}")
    return value


def _number(name: str, value: object) -> float:
    return number_within(name, value, *_BOUNDS[name], whole=name in _WHOLE)


def _examples(value: object) -> tuple[tuple[str, str], ...]:
    fine = isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)
        for pair in value
    )
    if not fine:
        raise ValueError("examples: must be a list of [what the user says, what is answered]")
    return tuple((pair[0], pair[1]) for pair in value)  # type: ignore[attr-defined]
