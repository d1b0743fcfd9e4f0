"""Names for vLLM's and transformers' own objects, which this package's types do not know: neither is there when it is checked."""

from __future__ import annotations

from typing import Any, TypeAlias

Engine: TypeAlias = Any
"""AsyncLLM."""
Core: TypeAlias = Any
"""EngineCore, in vLLM's process."""
Request: TypeAlias = Any
"""A request as the scheduler holds it."""
Params: TypeAlias = Any
"""SamplingParams."""
Output: TypeAlias = Any
"""RequestOutput."""
Source: TypeAlias = Any
"""What `AsyncLLM.generate` takes as a prompt."""
Tokenizer: TypeAlias = Any
"""A tokenizer of the transformers kind."""
Whatever: TypeAlias = Any
"""Arguments and results that are only passed on."""
