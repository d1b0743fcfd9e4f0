"""The graphs that are cut from hibari's one."""

import numpy as np
import onnx
import pytest

from engines.cpu.hibari_graphs import DURATIONS, FEATURES, FRAMES_PER_DURATION, SPECTRA, dequantise
from engines.cpu.onnx_runtime import open_session
from engines.cpu.phonemes import shared_pronouncer
from engines.model_store.recipes import HIBARI_CODEC, HIBARI_CODEC_FLOAT, HIBARI_TALKER
from engines.model_store.store import ModelStore
from session_server.types.errors import EngineFault

pytestmark = pytest.mark.unit


def test_durations_say_how_many_frames_there_are(speech_store: ModelStore) -> None:
    (sentence,) = shared_pronouncer()("The bridge is old.")
    feeds = {"ids": np.asarray([sentence.ids]), "speed": np.ones(1, np.float32)}
    session = open_session(speech_store.path(HIBARI_TALKER))
    features, f0, durations = session.run([FEATURES, "f0", DURATIONS], feeds)
    assert durations.shape == (len(sentence.ids),)
    assert durations.sum() * FRAMES_PER_DURATION == features.shape[2] == f0.shape[1]


def test_float_codec_has_no_8_bit_products_and_stays_close(speech_store: ModelStore) -> None:
    (sentence,) = shared_pronouncer()("The bridge is old.")
    feeds = {"ids": np.asarray([sentence.ids]), "speed": np.ones(1, np.float32)}
    features = open_session(speech_store.path(HIBARI_TALKER)).run([FEATURES], feeds)[0]
    names = (HIBARI_CODEC, HIBARI_CODEC_FLOAT)
    kinds = [{n.op_type for n in onnx.load(speech_store.path(n)).graph.node} for n in names]
    assert "MatMulInteger" in kinds[0]
    assert "MatMulInteger" not in kinds[1]
    eight, full = (
        open_session(speech_store.path(n)).run(list(SPECTRA), {FEATURES: features})[0]
        for n in names
    )
    assert np.corrcoef(eight.ravel(), full.ravel())[0, 1] > 0.99


def test_a_graph_of_another_version_is_refused(speech_store: ModelStore) -> None:
    model = onnx.load(speech_store.path(HIBARI_CODEC))
    producer = next(n for n in model.graph.node if n.op_type == "DynamicQuantizeLinear")
    source = next(n for n in model.graph.node if producer.input[0] in n.output)
    source.input[0] = producer.output[0]
    with pytest.raises(EngineFault, match="wrong version"):
        dequantise(model)
