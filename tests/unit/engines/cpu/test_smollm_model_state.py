"""Tokenizer, snapshots and exported state."""

from pathlib import Path

import numpy as np
import pytest

from engines.cpu.smollm_model import PrefixCache, SlotModel, pack_state, unpack_state
from engines.cpu.smollm_prompt import LAST_CONTROL, CharacterStream, SmolTokenizer
from engines.model_store.recipes import SMOLLM_GRAPH, SMOLLM_TOKENIZER
from engines.model_store.store import ModelStore
from session_server.types.errors import EngineFault

pytestmark = pytest.mark.unit


@pytest.fixture
def tokenizer(tiny_store: ModelStore) -> SmolTokenizer:
    return SmolTokenizer(tiny_store.path(SMOLLM_TOKENIZER))


@pytest.mark.parametrize(
    "text", ["plain", "na\u00efve caf\u00e9", "\U0001f600\u4f60\u597d", " \n\t", ""]
)
def test_text_survives_tokens(tokenizer: SmolTokenizer, text: str) -> None:
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    stream = CharacterStream(tokenizer)
    assert "".join(stream.push(t) for t in tokens) == text


def test_characters_come_whole(tokenizer: SmolTokenizer) -> None:
    stream = CharacterStream(tokenizer)
    pieces = [stream.push(t) for t in tokenizer.encode("a\U0001f600b")]
    assert pieces == ["a", "", "", "", "\U0001f600", "b"]


def test_control_tokens_have_no_text_and_are_never_written(tokenizer: SmolTokenizer) -> None:
    tokens = tokenizer.encode("<|im_start|>system<|im_end|><|endoftext|>")
    assert min(tokens) > LAST_CONTROL
    assert tokenizer.decode(list(range(LAST_CONTROL + 1))) == ""


def test_a_broken_tokenizer_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("{}")
    with pytest.raises(EngineFault, match=r"t\.json"):
        SmolTokenizer(path)


def test_a_broken_graph_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "g.onnx"
    path.write_bytes(b"not a graph")
    with pytest.raises(EngineFault, match=r"g\.onnx"):
        SlotModel(path, 1, 64)


def test_chunks_and_batches_are_bit_identical(tiny_store: ModelStore) -> None:
    model = SlotModel(tiny_store.path(SMOLLM_GRAPH), 4, 128)
    tokens = [int(t) for t in np.random.default_rng(1).integers(17, 270, 60)]
    whole = model.prefill(0, 0, tokens).copy()
    for chunk in (2, 3, 20, 30):
        for at in range(0, 60, chunk):
            parts = model.prefill(1, at, tokens[at : at + chunk])
        np.testing.assert_array_equal(parts, whole)
    alone = model.decode({0: (60, 99)}, {})[0].copy()
    model.prefill(3, 0, tokens[:10])
    both = model.decode({1: (60, 99), 3: (10, 50)}, {2: 128})
    np.testing.assert_array_equal(both[1], alone)
    model.copy(0, 2, 60)
    np.testing.assert_array_equal(model.decode({2: (60, 99)}, {})[2], alone)
    model.restore(3, model.save(0, 60))
    np.testing.assert_array_equal(model.decode({3: (60, 99)}, {})[3], alone)


def test_slots_never_overflow(tiny_store: ModelStore) -> None:
    model = SlotModel(tiny_store.path(SMOLLM_GRAPH), 1, 16)
    with pytest.raises(ValueError, match="fit"):
        model.prefill(0, 10, list(range(20, 30)))
    with pytest.raises(ValueError, match="fit"):
        model.decode({0: (16, 20)}, {})
    with pytest.raises(ValueError, match="chunk"):
        model.prefill(0, 0, [20])
    with pytest.raises(ValueError, match="another model"):
        model.restore(0, np.zeros((2, 1, 4, 32), np.float32))


def test_snapshots_are_bounded_in_bytes() -> None:
    cache = PrefixCache(1000)
    state = np.zeros((1, 1, 100, 1), np.float32)
    cache.put([1], state)
    cache.put([2], state)
    assert cache.get([1]) is not None
    cache.put([3], state)
    assert not cache.has([2])
    assert cache.has([1])
    assert cache.has([3])
    cache.put([4], np.zeros((1, 1, 1000, 1), np.float32))
    assert not cache.has([4])


def test_state_survives_its_bytes() -> None:
    kv = np.random.default_rng(0).standard_normal((4, 3, 5, 8)).astype(np.float32)
    tokens, again = unpack_state(pack_state([1, 2, 3, 4, 5], kv))
    assert tokens == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(again, kv)
