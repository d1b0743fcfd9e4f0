"""A tokenizer and a feature extractor for tiny Omni models: the real vocabulary size and token ids, no language.

Bytes, the control tokens, and fillers: every text can be written, none is written well.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

VOCABULARY = 152_064
_ROLES = {872: "user", 77091: "assistant", 8948: "system"}


def made_once(folder: Path, write: Callable[[Path], None]) -> Path:
    """`folder`, which `write` fills unless it is there; half a model is never left under that name."""
    if (folder / "config.json").exists():
        return folder
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    write(part)
    part.rename(folder)
    return folder


def write_text_files(folder: Path, control: Mapping[int, str]) -> None:
    """`control`: the control tokens by their ids."""
    _write_tokenizer(folder, control)
    _write_feature_extractor(folder)


def _write_tokenizer(folder: Path, control: Mapping[int, str]) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces += [f"word{i}" for i in range(len(pieces), VOCABULARY)]
    for token, piece in {**control, **_ROLES}.items():
        pieces[token] = piece
    vocabulary = {piece: token for token, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(piece, special=True) for piece in control.values()])
    tokenizer.add_tokens([AddedToken(role, normalized=False) for role in _ROLES.values()])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 4096,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _write_feature_extractor(folder: Path) -> None:
    from transformers import WhisperFeatureExtractor

    WhisperFeatureExtractor(
        feature_size=128, hop_length=160, n_fft=400, chunk_length=300, sampling_rate=16_000
    ).save_pretrained(folder)
