"""From options to the effective configuration."""

from __future__ import annotations

import argparse
import logging
import os
from dataclasses import replace

from session_server.config import Config, LoadedConfig, load, misspelt
from session_server.observability.logs import configure_logging

_log = logging.getLogger(__name__)

_PATIENT_LAG_MS = 2000
_KEYS = {
    "host": "server.host",
    "port": "server.port",
    "tls_cert": "server.tls_cert",
    "tls_key": "server.tls_key",
    "tls_self_signed": "server.tls_self_signed",
    "models": "models.folder",
    "log_level": "observability.log_level",
    "log_format": "observability.log_format",
    "max_sessions": "scheduler.max_sessions",
    "policy": "scheduler.policy",
    "workers": "server.workers",
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
    for line in misspelt(os.environ, (setting.key for setting in loaded.settings())):
        _log.warning("%s", line)
    return loaded


def patient(options: argparse.Namespace, config: Config) -> Config:
    """For commands that hold one conversation in the server's own process and print it: the process makes speech
    and reads files too, and that its loop stands still for a moment is nobody's concern. Not with `--debug`."""
    if options.debug:
        return config
    lag_ms = max(config.observability.loop_lag_ms, _PATIENT_LAG_MS)
    return replace(config, observability=replace(config.observability, loop_lag_ms=lag_ms))
