"""Tiny Moshi models of the real classes, with random weights: for tests and for trying the server without weights.

They make noise and nonsense, at the real frame rate, with the real codebooks, delays and layers of state; a step takes a few
milliseconds on a CPU. Equal seeds give equal weights. The vocabulary is a real SentencePiece model of a few sentences.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sentencepiece
import torch
from moshi.models import LMModel, MimiModel, loaders
from moshi.modules import SEANetDecoder, SEANetEncoder, transformer
from moshi.quantization import SplitResidualVectorQuantizer

from engines.duplex.moshi import RATE, MoshiEngine
from engines.duplex.moshi_batch import MoshiModels
from engines.duplex.options import MoshiOptions
from engines.model_store.store import ModelStore
from engines.options import by_type

CARDS = 64
BOOKS = 8
CONTEXT = 64
"""Frames that attention looks back: rings go round within a test."""

_SENTENCES = (
    "the quick brown fox jumps over the lazy dog and runs away",
    "hello there how are you today I am very well thank you",
    "what would you like to talk about I know nothing at all",
    "pack my box with five dozen jugs of good apple juice please",
)


def tiny_mimi() -> Any:  # noqa: ANN401 - a MimiModel
    """The codec, 0.6 million parameters."""
    seanet = {**loaders._seanet_kwargs, "n_filters": 8, "dimension": 64}
    layers = {
        **loaders._transformer_kwargs,
        "input_dimension": 64,
        "output_dimensions": [64],
        "d_model": 64,
        "num_heads": 4,
        "num_layers": 2,
        "dim_feedforward": 128,
        "context": 50,
    }
    books = {
        **loaders._quantizer_kwargs,
        "dimension": 32,
        "n_q": BOOKS,
        "bins": CARDS,
        "input_dimension": 64,
        "output_dimension": 64,
    }
    encoder = SEANetEncoder(**seanet)
    mimi = MimiModel(
        encoder,
        SEANetDecoder(**seanet),
        SplitResidualVectorQuantizer(**books),
        channels=1,
        sample_rate=RATE,
        frame_rate=loaders.FRAME_RATE,
        encoder_frame_rate=RATE / encoder.hop_length,
        causal=True,
        resample_method="conv",
        encoder_transformer=transformer.ProjectedTransformer(device="cpu", **layers),
        decoder_transformer=transformer.ProjectedTransformer(device="cpu", **layers),
    ).eval()
    mimi.set_num_codebooks(BOOKS)
    return mimi


def tiny_lm(text_card: int) -> Any:  # noqa: ANN401 - an LMModel
    """The language model, 0.4 million parameters: two layers, a depth transformer, Moshi's delays."""
    return LMModel(
        delays=[0, 0, *[1] * 7, 0, *[1] * 7],
        n_q=2 * BOOKS,
        dep_q=BOOKS,
        card=CARDS,
        text_card=text_card,
        dim=64,
        num_heads=4,
        num_layers=2,
        hidden_scale=4.125,
        causal=True,
        context=CONTEXT,
        max_period=10_000,
        gating="silu",
        norm="rms_norm_f32",
        positional_embedding="rope",
        depformer_dim=32,
        depformer_dim_feedforward=64,
        depformer_num_heads=4,
        depformer_num_layers=2,
        depformer_layer_scale=None,
        depformer_multi_linear=True,
        depformer_context=8,
        depformer_max_period=10_000,
        depformer_gating="silu",
        depformer_pos_emb="none",
        depformer_weights_per_step=True,
        existing_text_padding_id=3,
        device="cpu",
        dtype=torch.float32,
    ).eval()


def tiny_vocabulary() -> Any:  # noqa: ANN401 - a SentencePieceProcessor
    """Token 0 ends padding and 3 is padding, as in Moshi's own."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_SENTENCES),
        model_writer=model,
        vocab_size=90,
        hard_vocab_limit=False,
        pad_id=3,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def build(options: MoshiOptions) -> MoshiModels:
    """The seed was set by the engine."""
    torch.manual_seed(options.seed)
    vocabulary = tiny_vocabulary()
    mimi = tiny_mimi()
    return MoshiModels(mimi, tiny_lm(vocabulary.vocab_size()), vocabulary.id_to_piece)


DEFAULTS = replace(MoshiOptions(), device="cpu", dtype="float32", threads=1)


def create(options: Mapping[str, object], store: ModelStore) -> MoshiEngine:
    return MoshiEngine(by_type(options, DEFAULTS), build)
