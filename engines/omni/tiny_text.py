"""A tokenizer, a feature extractor and the sizes of pictures for tiny Omni models: the real vocabulary size and token ids, no language.

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


def write_text_files(folder: Path, control: Mapping[int, str], patch: int) -> None:
    """`control`: the control tokens by their ids. `patch`: pixels of a side of what the vision tower takes."""
    _write_tokenizer(folder, control)
    _write_preprocessor(folder, patch)


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


def _write_preprocessor(folder: Path, patch: int) -> None:
    """Of sounds and of pictures in one file, as the models were published."""
    from transformers import WhisperFeatureExtractor

    WhisperFeatureExtractor(
        feature_size=128, hop_length=160, n_fft=400, chunk_length=300, sampling_rate=16_000
    ).save_pretrained(folder)
    path = folder / "preprocessor_config.json"
    pictures = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "min_pixels": 3136,
        "max_pixels": 12_845_056,
        "patch_size": patch,
        "temporal_patch_size": 2,
        "merge_size": 2,
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | pictures))
