"""SmolLM2's graph and tokenizer, made once from the GGUF file in its package.

Only this module needs `gguf`; the running server needs what it writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engines.cpu.smollm_graph import SMOLLM2_135M, build_graph
from engines.model_files import SMOLLM_GRAPH, SMOLLM_TOKENIZER

_SPECIAL = 3
"""GGUF's token type of control tokens."""


def build(source: Path, out_dir: Path) -> None:
    """Write the graph and the tokenizer of the GGUF file `source` into `out_dir`."""
    reader = GGUFReader(str(source))
    weights = {
        tensor.name: dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        for tensor in reader.tensors
    }
    build_graph(weights, SMOLLM2_135M, out_dir / SMOLLM_GRAPH)
    _tokenizer(reader.fields).save(str(out_dir / SMOLLM_TOKENIZER))


def _tokenizer(fields: Any) -> Tokenizer:  # noqa: ANN401 - gguf has no types
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    kinds = fields["tokenizer.ggml.token_type"].contents()
    vocabulary = {text: i for i, text in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(tokens, kinds, strict=True) if kind == _SPECIAL]
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in special]
    )
    return tokenizer
