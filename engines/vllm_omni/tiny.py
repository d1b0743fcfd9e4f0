"""The tiny Qwen3-Omni of `engines.omni.tiny` with what vllm-omni asks for besides: the processor's files, and a tokenizer that knows
the names of the sound tokens. `python -m engines.vllm_omni.tiny FOLDER`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engines.omni.tiny import main, tiny_qwen3
from engines.vllm_omni import plugin

_TOKENS = {
    "image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "audio_token": "<|audio_pad|>",
    "vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>", "audio_bos_token": "<|audio_start|>",
    "audio_eos_token": "<|audio_end|>",
}  # fmt: skip
_PATCHES = {"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2}
_IMAGES = {
    **_PATCHES, "min_pixels": 3136, "max_pixels": 100_352, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    "image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen3OmniMoeProcessor",
}  # fmt: skip
_VIDEOS = {**_PATCHES, "video_processor_type": "Qwen2VLVideoProcessor"}
_TOKENIZER = {
    **_TOKENS, "extra_special_tokens": _TOKENS, "tokenizer_class": "Qwen2TokenizerFast",
}  # fmt: skip
_MODEL = {"architectures": ["Qwen3OmniMoeForConditionalGeneration"]}
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{m['role']}}\n{{m['content']}}<|im_end|>\n{% endfor %}"
)


def tiny(folder: Path, seed: int = 0) -> Path:
    """Make the model in `folder`, unless it is there; returns the folder."""
    plugin.prepare()
    tiny_qwen3(folder, seed)
    done = folder / "chat_template.jinja"
    if not done.exists():
        _add(folder / "preprocessor_config.json", _IMAGES)
        _add(folder / "video_preprocessor_config.json", _VIDEOS)
        _add(folder / "tokenizer_config.json", _TOKENIZER)
        _add(folder / "config.json", _MODEL)
        done.write_text(_TEMPLATE)
    return folder


def _add(path: Path, settings: Mapping[str, Any]) -> None:
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | dict(settings)))


if __name__ == "__main__":
    main("engines.vllm_omni.tiny", tiny)
