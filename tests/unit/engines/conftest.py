"""The speech stages' graphs, built once a run from the installed package: no fetched models are needed."""

import pytest

from engines.cpu.hibari_graphs import build
from engines.cpu.phonemes import hibari_file
from engines.model_store.store import ModelStore


@pytest.fixture(scope="session")
def speech_store(tmp_path_factory: pytest.TempPathFactory) -> ModelStore:
    """A store with the talker's and the codec's graphs."""
    folder = tmp_path_factory.mktemp("speech-graphs")
    build(hibari_file("hibari.onnx"), folder)
    return ModelStore(folder)
