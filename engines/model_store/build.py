"""Builds a recipe's graphs in a process of its own, so that the memory it takes (2 GB) is given back.

`python -m engines.model_store.build RECIPE SOURCE FOLDER` writes the recipe's outputs into FOLDER.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

from engines.model_store.recipes import Recipe
from engines.model_store.store import FetchFailed

_BUILDERS = {
    "smollm": "engines.cpu.smollm_graph",
    "hibari": "engines.cpu.hibari_graphs",
    "detectors": "engines.vision.detector_graphs",
}


def source_of(recipe: Recipe, root: Path) -> Path:
    """The file that the recipe starts from. Raises FetchFailed when its package is not installed."""
    if recipe.package_input is None:
        return root / recipe.inputs[0]
    package, relative = recipe.package_input
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / relative
        if path.exists():
            return path
    raise FetchFailed(
        f"{recipe.name} cannot be built: the package {package} is not installed whole"
    )


def build(recipe: Recipe, source: Path, folder: Path) -> None:
    """Write the recipe's outputs into `folder`. Raises FetchFailed with the builder's last line."""
    paths = [str(resources.files("engines").joinpath("..")), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [
        sys.executable,
        "-m",
        "engines.model_store.build",
        recipe.name,
        str(source),
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    missing = [output.name for output in recipe.outputs if not (folder / output.name).exists()]
    if done.returncode != 0 or missing:
        lines = done.stderr.strip().splitlines() or [f"{', '.join(missing)} not written"]
        raise FetchFailed(f"{recipe.name} cannot be built: {lines[-1][:200]}")


def main(arguments: list[str]) -> None:
    """Entry point of the building process."""
    name, source, folder = arguments
    importlib.import_module(_BUILDERS[name]).build(Path(source), Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
