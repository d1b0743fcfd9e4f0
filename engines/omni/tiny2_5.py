"""A tiny Qwen2.5-Omni with random weights (21 million parameters), made of the real classes, for tests and for trying things out.

It has the real vocabulary and token ids, a real feature extractor, two made-up voices and all three parts; it understands nothing.
Made once in a folder, in float32, from a seed: `python -m engines.omni.tiny2_5 FOLDER`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from engines.omni.tiny import VOCABULARY, made_once, main, write_text_files

VOICES = {"Chelsie": 151_872, "Ethan": 151_873}
"""The text token that begins each one's speech."""
_CONTROL = {
    151643: "<|endoftext|>",
    151644: "<|im_start|>",
    151645: "<|im_end|>",
    151646: "<|AUDIO|>",
    151647: "<|audio_bos|>",
    151648: "<|audio_eos|>",
    151652: "<|vision_bos|>",
    151653: "<|vision_eos|>",
    151655: "<|IMAGE|>",
    151656: "<|VIDEO|>",
}
_TEXT = {
    "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64, "intermediate_size": 128,
    "max_position_embeddings": 4096,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]},
}  # fmt: skip
_AUDIO = {
    "num_mel_bins": 128, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 64, "d_model": 64,
    "output_dim": 64, "n_window": 100,
}  # fmt: skip
_VISION = {
    "depth": 1, "hidden_size": 64, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64,
    "fullatt_block_indexes": [0],
}  # fmt: skip
_DIT = {
    "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 16, "emb_dim": 32, "enc_emb_dim": 24,
    "enc_dim": 16, "enc_channels": [16, 16, 16, 16, 48], "enc_attention_channels": 8, "enc_se_channels": 8,
    "look_ahead_layers": [2], "look_backward_layers": [0, 3],
}  # fmt: skip
_BIGVGAN = {"upsample_initial_channel": 64}
"""Halved at each of six upsamplings: with less than 64 nothing would be left."""


def tiny_qwen2_5(folder: Path, seed: int = 0) -> Path:
    """Make the model in `folder`, unless it is there; returns the folder."""

    def write(part: Path) -> None:
        write_text_files(part, _CONTROL, patch=14)
        model = _model(seed)
        model.save_pretrained(part)
        _write_voices(part, model.config.token2wav_config.dit_config, seed)

    return made_once(folder, write)


def _model(seed: int) -> Any:  # noqa: ANN401 - a module of torch
    from transformers import Qwen2_5OmniConfig, Qwen2_5OmniForConditionalGeneration

    config = Qwen2_5OmniConfig(
        thinker_config={
            "text_config": {**_TEXT, "vocab_size": VOCABULARY, "num_hidden_layers": 3, "tie_word_embeddings": False},
            "audio_config": _AUDIO,
            "vision_config": _VISION,
            "vision_start_token_id": 151652,
            "vision_end_token_id": 151653,
        },
        talker_config={**_TEXT, "num_hidden_layers": 2, "head_dim": 16, "embedding_size": 64},
        token2wav_config={"dit_config": _DIT, "bigvgan_config": _BIGVGAN},
        enable_audio_output=True,
    )  # fmt: skip
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        model = Qwen2_5OmniForConditionalGeneration(config).float()
        for name, weight in model.named_parameters():
            if "embed_tokens" in name or "codec_embed" in name:
                weight.normal_(0, 1)
            elif (
                weight.dim() > 1
            ):  # the usual start gives near silence, and the same token for ever
                weight.normal_(0, 0.7 / weight[0].numel() ** 0.5)
        model.token2wav.code2wav_bigvgan_model.conv_post.weight.mul_(8)  # loud enough to be heard
    return model


def _write_voices(folder: Path, dit: Any, seed: int) -> None:  # noqa: ANN401 - a config of transformers
    chance = torch.Generator().manual_seed(seed)
    voices = {
        name: {
            "bos_token": token,
            "cond": torch.randn(1, dit.enc_emb_dim, generator=chance),
            "ref_mel": torch.randn(1, 60 + 20 * number, dit.mel_dim, generator=chance),
        }
        for number, (name, token) in enumerate(VOICES.items())
    }
    torch.save(voices, folder / "spk_dict.pt")


if __name__ == "__main__":
    main("engines.omni.tiny2_5", tiny_qwen2_5)
