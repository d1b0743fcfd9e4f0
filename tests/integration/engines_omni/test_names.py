"""The names of transformers that the Omni engines use and that are not its public interface: another version may lack them."""

import importlib
import inspect
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from engines.omni.weights import QWEN2_5, QWEN3, TRANSFORMERS, Family

pytestmark = pytest.mark.integration


def test_the_version_is_the_one_that_the_engines_are_written_for():
    assert version("transformers") == TRANSFORMERS
    assert f"transformers=={TRANSFORMERS}\n" in Path("engines/omni/requirements.txt").read_text()


@pytest.mark.parametrize("family", [QWEN3, QWEN2_5], ids=lambda family: family.title)
def test_the_classes_of_the_parts_are_there(family: Family):
    module = importlib.import_module(family.module)
    for part in (family.vision, family.thinker, family.talker, family.vocoder):
        assert hasattr(module, part.kind)


def test_the_lengths_of_heard_sounds_can_be_asked_for():
    from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniAudioEncoder
    from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as qwen3

    assert list(
        inspect.signature(Qwen2_5OmniAudioEncoder._get_feat_extract_output_lengths).parameters
    ) == ["self", "input_lengths"]
    assert len(inspect.signature(qwen3._get_feat_extract_output_lengths).parameters) == 2


def test_pictures_are_cut_without_torchvision_and_looked_at_by_grids():
    from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniVisionEncoder
    from transformers.models.qwen2_vl import image_processing_pil_qwen2_vl as cutting
    from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as qwen3

    cut = cutting.Qwen2VLImageProcessorPil()
    assert cut.size["shortest_edge"] < cut.size["longest_edge"]
    assert (cut.patch_size, cut.merge_size) == (14, 2)
    for tower in (Qwen2_5OmniVisionEncoder, qwen3.Qwen3OmniMoeVisionEncoder):
        assert "grid_thw" in inspect.signature(tower.forward).parameters
    reads = inspect.signature(qwen3.Qwen3OmniMoeThinkerTextModel.forward).parameters
    assert {"visual_pos_masks", "deepstack_visual_embeds", "position_ids"} <= set(reads)


def test_the_denoiser_is_made_of_the_modules_that_are_called_one_by_one(folders, tmp_path):
    from engines.omni.options import Token2WavOptions
    from engines.omni.weights import Weights
    from tests.integration.engines_omni import kinds

    weights = Weights(Token2WavOptions(weights=str(folders(kinds.QWEN2_5))), QWEN2_5)
    module = importlib.import_module(QWEN2_5.module)
    step = inspect.signature(module.RungeKutta4ODESolver._compute_step)
    assert list(step.parameters)[1:] == [
        "function", "time_start", "time_step", "time_end", "value_start",
    ]  # fmt: skip
    model = weights.module(QWEN2_5.vocoder)
    dit = model.code2wav_dit_model
    for name in ("time_embed", "text_embed", "input_embed", "rotary_embed", "transformer_blocks", "norm_out", "proj_out"):  # fmt: skip
        assert hasattr(dit, name), name
    assert hasattr(dit.input_embed, "proj")
    assert hasattr(dit.input_embed, "spk_encoder")
    assert hasattr(dit.text_embed, "codec_embed")
    layer = inspect.signature(type(dit.transformer_blocks[0]).forward)
    assert list(layer.parameters)[1:] == [
        "hidden_states", "timestep", "position_embeddings", "block_diff",
    ]  # fmt: skip
    assert hasattr(model.code2wav_bigvgan_model.config, "upsample_rates")
