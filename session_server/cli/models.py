"""`models fetch|list|path`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from session_server.cli.console import console, fetch_bars, print_json, table
from session_server.cli.settings import settings
from session_server.client.models import (
    ModelEntry,
    fetch_models,
    looks_at_pictures,
    missing_models,
    model_store,
)
from session_server.config import Config


def run(options: argparse.Namespace) -> int:
    config = settings(options, quiet=True).config
    if options.action == "path":
        folder = str(model_store(config).root)
        if options.json:
            print_json({"folder": folder})
        else:
            console.print(folder, markup=False)
        return 0
    if options.action == "fetch":
        fetch(config, verify=options.verify, quiet=options.json, vision=options.vision)
        return _list(config, as_json=True) if options.json else 0
    return _list(config, options.json)


def fetch(
    config: Config, *, verify: bool = False, quiet: bool = False, vision: bool = False
) -> None:
    """Fetch with bars, when anything is missing or all is to be verified. `quiet`: say nothing on stdout."""
    store = model_store(config)
    with fetch_bars() as bars:
        entries = fetch_models(store, bars, verify=verify, vision=vision)
    kept = sum(entry.size for entry in entries if entry.present) / 1e6
    if not quiet:
        console.print(f"{kept:.0f} MB in {store.root}", markup=False)


def fetch_if_needed(config: Config) -> None:
    """Fetch unless all that this configuration needs is there."""
    if missing_models(config):
        fetch(config, vision=looks_at_pictures(config))


def _here(entry: ModelEntry) -> str:
    if entry.present:
        return "yes"
    if entry.source_only:
        return "-"
    return "no (vision only)" if entry.optional else "no"


def _short(source: str) -> str:
    """Where a file comes from, without the folders of a file that it was built from."""
    words = source.split()
    return " ".join([*words[:-1], words[-1].rpartition("/")[2]]) if words else ""


def _list(config: Config, as_json: bool) -> int:
    store = model_store(config)
    entries = store.list()
    missing = store.missing()
    if as_json:
        models = [asdict(entry) for entry in entries]
        print_json({"ok": not missing, "folder": str(store.root), "models": models})
    else:
        rows = [
            [
                entry.name.rpartition("/")[2],
                f"{entry.size / 1e6:.1f}",
                _here(entry),
                entry.licence,
                _short(entry.source),
            ]
            for entry in entries
        ]
        table(str(store.root), ["file", "MB", "here", "licence", "source"], rows)
    return 1 if missing else 0
