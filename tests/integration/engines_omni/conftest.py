"""The tiny Omni models of `engines.omni`, made once, in float32 on one thread. Needs torch and transformers."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.integration.engines_omni.kinds import KINDS, Kind

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
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Kind], Path]:
    """Makes a tiny model of that kind. `$OMNI_TINY` names a folder to keep them in."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    torch.set_num_threads(1)
    kept = os.environ.get("OMNI_TINY")
    root = Path(kept) if kept else tmp_path_factory.mktemp("omni")
    return lambda kind: kind.tiny(root / f"tiny-{kind.name}")


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture(scope="module")
def weights(kind: Kind, folders: Callable[[Kind], Path]) -> Path:
    return folders(kind)


@pytest.fixture(scope="module")
def options(weights: Path) -> dict:
    return {"weights": str(weights), "dtype": "float32", "threads": 1}


def sound(seconds: float, seed: int) -> bytes:
    """Noise that swells and falls: no two seeds are heard alike."""
    rng = np.random.default_rng(seed)
    count = int(seconds * 16_000)
    swell = np.sin(np.arange(count) / 16_000 * 3.0 * (1 + seed % 3)) ** 2
    return (rng.standard_normal(count) * 6000 * swell).astype("<i2").tobytes()
