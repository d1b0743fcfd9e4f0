"""A tiny thinker with random weights and a byte tokenizer, and the fetched models where they are."""

import os
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engines.cpu.smollm_graph import ModelShape, build_graph
from engines.cpu.smollm_prompt import LAST_CONTROL, _byte_of_character
from engines.model_store.recipes import SMOLLM_GRAPH, SMOLLM_TOKENIZER
from engines.model_store.store import ModelStore

CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def tiny_shape(vocabulary: int) -> ModelShape:
    return ModelShape(
        width=64, heads=2, kv_heads=1, head=32, layers=2, vocabulary=vocabulary, positions=1024
    )


def write_tokenizer(path: Path) -> int:
    """One token a byte, behind the control tokens; how many there are."""
    controls = [*CONTROLS, *(f"<control_{i}>" for i in range(LAST_CONTROL + 1 - len(CONTROLS)))]
    tokens = [*controls, *_byte_of_character()]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in controls])
    tokenizer.save(str(path))
    return len(tokens)


def write_graph(path: Path, shape: ModelShape, seed: int = 0) -> None:
    """Random weights under their GGUF names."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) * 0.2).astype(np.float32)

    weights = {
        "token_embd.weight": matrix(shape.vocabulary, shape.width),
        "output_norm.weight": np.ones(shape.width, np.float32),
    }
    kv = shape.kv_heads * shape.head
    for layer in range(shape.layers):
        sizes = {
            "attn_q": (shape.width, shape.width),
            "attn_k": (kv, shape.width),
            "attn_v": (kv, shape.width),
            "attn_output": (shape.width, shape.width),
            "ffn_gate": (128, shape.width),
            "ffn_up": (128, shape.width),
            "ffn_down": (shape.width, 128),
        }
        weights |= {f"blk.{layer}.{n}.weight": matrix(*size) for n, size in sizes.items()}
        for norm in ("attn_norm", "ffn_norm"):
            weights[f"blk.{layer}.{norm}.weight"] = np.ones(shape.width, np.float32)
    build_graph(weights, shape, path)


@pytest.fixture(scope="session")
def tiny_store(tmp_path_factory: pytest.TempPathFactory) -> ModelStore:
    """A store whose thinker answers gibberish within a millisecond."""
    folder = tmp_path_factory.mktemp("tiny-thinker")
    vocabulary = write_tokenizer(folder / SMOLLM_TOKENIZER)
    write_graph(folder / SMOLLM_GRAPH, tiny_shape(vocabulary))
    return ModelStore(folder)


@pytest.fixture(scope="session")
def fetched_store() -> ModelStore:
    """The fetched models, or a skip."""
    root = os.environ.get("SESSION_SERVER_MODELS")
    if not root:
        pytest.skip("SESSION_SERVER_MODELS is not set")
    store = ModelStore(Path(root))
    if store.missing():
        pytest.skip(f"models are missing: {', '.join(store.missing())}")
    return store
