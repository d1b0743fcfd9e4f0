"""The three parts of a Qwen3-Omni model, each read by itself from the published folder.

A part's module is made from the model's own config and only its weights are read, so that stages may be on different devices.
What is missing is said in one line, before anything is loaded.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import torch

from engines.omni.options import OmniOptions
from session_server.errors import EngineFault, ModelsMissing

_KIND = "qwen3_omni_moe"

LOADING = threading.Lock()
"""Held by a stage while it loads: transformers imports its modules as they are asked for, which two threads must not do at once."""


class Qwen3Weights:
    """The model in `options.weights`. Raises ModelsMissing when it is not there, EngineFault when it cannot be used."""

    def __init__(self, options: OmniOptions) -> None:
        self._options = options
        self.folder = Path(options.weights).expanduser()
        self.config = self._read_config()
        if options.threads:
            torch.set_num_threads(options.threads)

    def thinker(self) -> Any:  # noqa: ANN401 - a module of torch
        from transformers import Qwen3OmniMoeThinkerForConditionalGeneration as Thinker

        return self._load(Thinker, self.config.thinker_config, "thinker")

    def talker(self) -> Any:  # noqa: ANN401
        from transformers import Qwen3OmniMoeTalkerForConditionalGeneration as Talker

        # its config names no kind, by which transformers would know that the published experts are to be stacked
        self.config.talker_config.model_type = _KIND
        return self._load(Talker, self.config.talker_config, "talker")

    def code2wav(self) -> Any:  # noqa: ANN401
        from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
            Qwen3OmniMoeCode2Wav as Code2Wav,
        )

        return self._load(Code2Wav, self.config.code2wav_config, "code2wav")

    def _read_config(self) -> Any:  # noqa: ANN401
        from transformers import Qwen3OmniMoeConfig
        from transformers.utils import logging

        logging.set_verbosity_error()  # it would report each part's weights as unexpected in the others
        logging.disable_progress_bar()
        path = self.folder / "config.json"
        try:
            kind = json.loads(path.read_text()).get("model_type")
        except OSError:
            raise ModelsMissing(
                f"{self.folder} has no config.json: engine option weights must name the folder of a Qwen3-Omni model"
            ) from None
        except ValueError as error:
            raise EngineFault(f"{path} cannot be read: {error}") from None
        if kind != _KIND:
            raise EngineFault(f"{path} is of a {kind} model; this engine runs {_KIND}")
        if not any(self.folder.glob("*.safetensors")):
            raise ModelsMissing(
                f"{self.folder} has no *.safetensors files: its download is not whole"
            )
        return Qwen3OmniMoeConfig.from_pretrained(self.folder)

    def _load(self, kind: Any, config: Any, prefix: str) -> Any:  # noqa: ANN401
        device = torch.device(self._options.device)
        if device.type == "cuda" and not torch.cuda.is_available():
            raise EngineFault(
                f"engine option device: there is no {self._options.device} on this machine"
            )
        model, report = kind.from_pretrained(
            self.folder,
            config=config,
            dtype=getattr(torch, self._options.dtype),
            attn_implementation=self._options.attention,
            key_mapping={rf"^{prefix}\.": ""},
            local_files_only=True,
            output_loading_info=True,
        )
        if report["missing_keys"]:
            missing = sorted(report["missing_keys"])
            raise EngineFault(
                f"{self.folder} lacks weights of the {prefix}: {missing[0]}, {len(missing)} in all"
            )
        return model.eval().to(device)
