"""The vision stage of Qwen3-Omni."""

from __future__ import annotations

from collections.abc import Mapping

from engines.model_store import ModelStore
from engines.omni.parts import QWEN3
from engines.omni.vision import OmniVision, create_for, missing_for


def missing(options: Mapping[str, object], store: ModelStore) -> list[str]:
    """What is not here for these options, a line each."""
    return missing_for(options, QWEN3)


def create(options: Mapping[str, object], store: ModelStore) -> OmniVision:
    return create_for(options, QWEN3)
