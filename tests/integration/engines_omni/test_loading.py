"""Stages load at once, each on a thread of its own, in a process that has not imported transformers yet."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from session_server.config import load

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

LOAD = """
import sys, threading
from pathlib import Path
from engines.model_store.store import ModelStore
from engines.registry import factory

options = {"weights": sys.argv[1], "dtype": "float32", "threads": 1}
names = sys.argv[2:]
engines = [factory(name)(options, ModelStore(Path("."))) for name in names]
assert "transformers" not in sys.modules
failed = []

def load(engine):
    try:
        engine.load()
    except BaseException as error:
        failed.append(error)

threads = [threading.Thread(target=load, args=(engine,)) for engine in engines]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(repr(failed) if failed else 0)
"""


def test_three_stages_that_load_at_once_do_not_trip_over_each_others_imports(kind, weights):
    root = Path(__file__).resolve().parents[3]
    names = [spec.engine for spec in load(Path(kind.config.name)).config.graph.stages]
    command = [sys.executable, "-c", LOAD, str(weights), *names]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-500:]
