"""What was found in pictures, kept by what it depends on and by nothing else.

`Identity` names a finding: the picture's bytes, the models that looked, and the version of what is done before and after them. The
memory is shared by all sessions, which is harmless: whoever has the same bytes knows the picture already. It is bounded; what was
asked for longest ago goes first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from importlib.metadata import version
from typing import Generic, NamedTuple, TypeVar

from engines.model_files import VISION_PACKAGES, VISION_RECIPES

PREPARATION = 3
"""Of how a picture is decoded, made smaller and cut up, and of what is made of the models' outputs."""

Finding = TypeVar("Finding")


class Identity(NamedTuple):
    """Of a finding. `models`: names them and their weights."""

    picture: bytes
    models: str
    preparation: int = PREPARATION


def picture_hash(data: bytes) -> bytes:
    """Of the bytes as they came: 16 bytes of blake2b."""
    return hashlib.blake2b(data, digest_size=16).digest()


def detector_models() -> str:
    """What the detectors' graphs are made of and by."""
    weights = [file.sha256 for package in VISION_PACKAGES for file in package.files]
    recipes = [f"{recipe.name} {recipe.version}" for recipe in VISION_RECIPES]
    return " ".join((*recipes, *weights))


def reader_models(options: Mapping[str, object]) -> str:
    """The text reader's: they come with its package, and `options` choose among them."""
    return f"rapidocr {version('rapidocr')} {sorted(options.items())}"


class Memory(Generic[Finding]):
    """At most `most` findings."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[Identity, Finding] = OrderedDict()

    def get(self, name: Identity) -> Finding | None:
        found = self._known.get(name)
        if found is not None:
            self._known.move_to_end(name)
        return found

    def put(self, name: Identity, finding: Finding) -> None:
        self._known[name] = finding
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def clear(self) -> None:
        self._known.clear()
