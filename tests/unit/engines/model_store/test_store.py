"""Where model files are looked for, and what is said when they are not there."""

from pathlib import Path

import pytest

from engines.model_store import recipes
from engines.model_store.store import ModelStore, default_root
from session_server.types.errors import ModelsMissing

pytestmark = pytest.mark.unit


def test_the_environment_chooses_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SESSION_SERVER_MODELS", str(tmp_path))
    assert default_root() == tmp_path
    assert ModelStore().root == tmp_path


def test_else_it_lies_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SESSION_SERVER_MODELS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert default_root() == tmp_path / "session-server" / recipes.LAYOUT


def test_an_absent_file_is_named_with_the_cure(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    with pytest.raises(
        ModelsMissing, match=r"silero_vad\.onnx.*session-server models fetch"
    ) as caught:
        store.path(recipes.VAD)
    assert "\n" not in str(caught.value)


def test_a_file_cut_short_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / recipes.VAD
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    with pytest.raises(ModelsMissing, match="damaged"):
        ModelStore(tmp_path).path(recipes.VAD)
    built = tmp_path / recipes.SMOLLM_GRAPH
    built.touch()
    with pytest.raises(ModelsMissing, match="damaged"):
        ModelStore(tmp_path).path(recipes.SMOLLM_GRAPH)
    built.write_bytes(b"graph")
    assert ModelStore(tmp_path).path(recipes.SMOLLM_GRAPH) == built


def test_every_file_has_a_licence_a_source_and_a_credit(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    entries = store.list()
    assert len({e.name for e in entries}) == len(entries) >= 12
    for entry in entries:
        assert entry.licence
        assert entry.credit
        assert entry.source
        assert entry.size > 0
        assert not entry.present
    assert store.missing() == [e.name for e in entries if not e.source_only and not e.optional]
    assert store.missing_for_vision() == [
        e.name for e in entries if not e.source_only and e.optional
    ]
    assert recipes.SMOLLM_GGUF not in store.missing()
