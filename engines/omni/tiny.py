"""A tokenizer, a feature extractor and the sizes of pictures for tiny Omni models: the real vocabulary size and token ids, no language.

Bytes, the control tokens, and fillers: every text can be written, none is written well.

A tiny Qwen3-Omni with random weights (27 million parameters), made of the real classes, for tests and for trying things out.

It has the real vocabulary and token ids, the real template's control tokens, a real feature extractor and all three parts; it
understands nothing. Made once in a folder, in float32, from a seed: `python -m engines.omni.tiny FOLDER`.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

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


GROUPS = 16
_CONTROL = {
    151643: "<|endoftext|>",
    151644: "<|im_start|>",
    151645: "<|im_end|>",
    151647: "<|object_ref_end|>",
    151652: "<|vision_start|>",
    151653: "<|vision_end|>",
    151655: "<|image_pad|>",
    151656: "<|video_pad|>",
    151669: "<|audio_start|>",
    151670: "<|audio_end|>",
    151671: "<tts_pad>",
    151672: "<tts_text_bos>",
    151673: "<tts_text_eod>",
    151674: "<tts_text_bos_single>",
    151675: "<|audio_pad|>",
}
_ATTENTION = {
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "hidden_size": 64,
}  # fmt: skip
_TEXT = {
    **_ATTENTION,
    "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 4096,
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6], "interleaved": True,
        "mrope_interleaved": True,
    },
}  # fmt: skip
_AUDIO = {
    "num_mel_bins": 128, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 64, "d_model": 64,
    "output_dim": 64, "downsample_hidden_size": 16, "n_window": 50, "n_window_infer": 400,
}  # fmt: skip
_VISION = {
    "depth": 2, "hidden_size": 64, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64, "patch_size": 16,
    "image_size": 256, "apply_vit_abs_pos_embed": True, "deepstack_visual_indexes": [0],
    "num_position_embeddings": 256,
}  # fmt: skip
_CODE2WAV = {
    "codebook_size": 2048, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4,
    "intermediate_size": 64, "num_hidden_layers": 2, "num_quantizers": GROUPS, "sliding_window": 24, "decoder_dim": 48,
    "upsample_rates": [8, 5, 4, 3], "upsampling_ratios": [2, 2],
}  # fmt: skip


def tiny_qwen3(folder: Path, seed: int = 0) -> Path:
    """Make the model in `folder`, unless it is there; returns the folder."""

    def write(part: Path) -> None:
        write_text_files(part, _CONTROL, patch=16)
        _model(seed).save_pretrained(part)

    return made_once(folder, write)


def _model(seed: int) -> Any:  # noqa: ANN401 - a module of torch
    from transformers import Qwen3OmniMoeForConditionalGeneration

    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        model = Qwen3OmniMoeForConditionalGeneration(_config()).float()
        for name, weight in model.named_parameters():
            if "embed_tokens" in name or "codec_embedding" in name:
                weight.normal_(0, 1)
            elif (
                weight.dim() > 1
            ):  # the usual start gives near silence, and the same token for ever
                weight.normal_(0, 0.7 / weight[0].numel() ** 0.5)
            elif "gamma" in name or "layer_scale" in name:
                weight.fill_(0.5)
    return model


def _config() -> Any:  # noqa: ANN401
    from transformers import Qwen3OmniMoeConfig

    thinker = {
        "text_config": {**_TEXT, "vocab_size": VOCABULARY, "intermediate_size": 128, "num_hidden_layers": 4},
        "audio_config": _AUDIO,
        "vision_config": _VISION,
        "audio_token_id": 151675,
        "image_token_id": 151655,
        "video_token_id": 151656,
        "audio_start_token_id": 151669,
        "audio_end_token_id": 151670,
        "vision_start_token_id": 151652,
        "vision_end_token_id": 151653,
        "user_token_id": 872,
        "position_id_per_seconds": 13,
    }  # fmt: skip
    usual = Qwen3OmniMoeConfig().talker_config.to_dict()
    talker = {name: value for name, value in usual.items() if "token" in name}
    talker |= {
        "text_config": {
            **_TEXT, "vocab_size": 3072, "intermediate_size": 64, "num_hidden_layers": 2,
            "shared_expert_intermediate_size": 32,
        },
        "code_predictor_config": {
            **_ATTENTION, "vocab_size": 2048, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_code_groups": GROUPS, "max_position_embeddings": 64,
        },
        "num_code_groups": GROUPS,
        "thinker_hidden_size": 64,
        "accept_hidden_layer": 2,
        "spatial_merge_size": 2,
        "speaker_id": {"ethan": 2300, "chelsie": 2301, "aiden": 2302},
        "audio_token_id": 151675,
        "codec_pad_id": 2148,
        "codec_bos_id": 2149,
        "codec_eos_token_id": 2150,
        "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156,
        "codec_think_eos_id": 2157,
    }  # fmt: skip
    return Qwen3OmniMoeConfig(
        thinker_config=thinker,
        talker_config=talker,
        code2wav_config=_CODE2WAV,
        enable_audio_output=True,
    )


def main(name: str, make: Callable[[Path], object]) -> None:
    """The command `python -m` of a module that makes a model."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: python -m {name} FOLDER")
    sys.stdout.write(f"{make(Path(sys.argv[1]))}\n")


if __name__ == "__main__":
    main("engines.omni.tiny", tiny_qwen3)
