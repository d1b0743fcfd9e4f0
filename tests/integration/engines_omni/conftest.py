"""The tiny Qwen3-Omni of `engines.omni.tiny`, made once, in float32 on one thread. Needs torch and transformers."""

import os
from pathlib import Path

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_collection_modifyitems(items: list) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in Path(item.path).parents:
            # transformers' own code warns of torch's deprecations
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::UserWarning:torch.*"))


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`$OMNI_TINY` names a folder to keep it in."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from engines.omni.tiny import tiny_qwen3

    torch.set_num_threads(1)
    kept = os.environ.get("OMNI_TINY")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("omni") / "tiny-qwen3-omni"
    return tiny_qwen3(folder)


@pytest.fixture(scope="session")
def options(weights: Path) -> dict:
    return {"weights": str(weights), "dtype": "float32", "threads": 1}


def sound(seconds: float, seed: int) -> bytes:
    """Noise that swells and falls: no two seeds are heard alike."""
    rng = np.random.default_rng(seed)
    count = int(seconds * 16_000)
    swell = np.sin(np.arange(count) / 16_000 * 3.0 * (1 + seed % 3)) ** 2
    return (rng.standard_normal(count) * 6000 * swell).astype("<i2").tobytes()
