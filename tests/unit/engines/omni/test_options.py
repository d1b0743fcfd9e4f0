"""Options of the Omni engines: a number that no engine can work with is refused by its name, before any weights are read."""

from __future__ import annotations

import pytest

from engines.omni.options import (
    OmniOptions,
    Qwen3TalkerOptions,
    Qwen25TalkerOptions,
    ThinkerOptions,
    Token2WavOptions,
    VisionOptions,
    VocoderOptions,
    read_options,
)
from engines.options import WrongOption

pytestmark = pytest.mark.unit

ALL = (
    ThinkerOptions(), VisionOptions(), Qwen3TalkerOptions(), Qwen25TalkerOptions(), VocoderOptions(), Token2WavOptions(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("defaults", "name", "value"),
    [
        (ThinkerOptions(), "sound_s", -1),
        (ThinkerOptions(), "temperature", 1e9),
        (ThinkerOptions(), "top_k", -1),
        (ThinkerOptions(), "context", 2_000_000_000),
        (VisionOptions(), "remembered_tokens", -1),
        (Qwen3TalkerOptions(), "repetition_penalty", 0.0),
        (Qwen3TalkerOptions(), "predictor_top_k", -2),
        (Qwen25TalkerOptions(), "context", 8),
        (VocoderOptions(), "left_frames", -3),
        (VocoderOptions(), "threads", 1_000_000),
        (Token2WavOptions(), "left_blocks", -1),
        (Token2WavOptions(), "right_blocks", 1000),
        (Token2WavOptions(), "wave_frames", 100_000),
    ],
)
def test_a_number_that_is_out_of_bounds_is_refused_by_name(
    defaults: OmniOptions, name: str, value: float
):
    with pytest.raises(WrongOption, match=rf"^{name}: "):
        read_options({"weights": "folder", name: value}, defaults)


@pytest.mark.parametrize("defaults", ALL, ids=lambda options: type(options).__name__)
def test_what_stands_there_of_itself_is_within_the_bounds(defaults: OmniOptions):
    told = {n: getattr(defaults, n) for n in defaults.__dataclass_fields__}
    read = read_options({**told, "weights": "folder"}, defaults)
    assert read.weights == "folder"
