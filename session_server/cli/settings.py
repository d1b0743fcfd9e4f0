"""From options to the effective configuration."""

from __future__ import annotations

import argparse
import os

from session_server.config import LoadedConfig, load
from session_server.observability.logs import configure_logging

_KEYS = {
    "host": "server.host",
    "port": "server.port",
    "models": "models.folder",
    "log_level": "observability.log_level",
    "log_format": "observability.log_format",
    "max_sessions": "scheduler.max_sessions",
    "policy": "scheduler.policy",
}


def settings(options: argparse.Namespace, *, quiet: bool = False) -> LoadedConfig:
    """Read all sources and begin to log. `quiet`: only warnings, unless a level was asked for."""
    flags = {key: getattr(options, name, None) for name, key in _KEYS.items()}
    loaded = load(options.config, os.environ, flags)
    chosen = loaded.config.observability
    level = "debug" if options.debug else chosen.log_level
    if quiet and level == "info" and flags["observability.log_level"] is None:
        level = "warning"
    configure_logging(level=level, format=chosen.log_format)
    return loaded
