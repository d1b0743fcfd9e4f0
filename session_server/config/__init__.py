"""Configuration: one frozen tree, filled from a file, the environment and flags, checked at the start.

`load()` gives a `LoadedConfig`; whatever is wrong raises a ConfigError that names the key or file in one line.
"""

from __future__ import annotations

from session_server.config.sources import (
    ENV_PREFIX,
    EffectiveSetting,
    LoadedConfig,
    load,
    misspelt,
    shipped,
)
from session_server.config.tree import (
    AuthConfig,
    Config,
    DrainConfig,
    EchoGuardConfig,
    LimitsConfig,
    ModelsConfig,
    ObservabilityConfig,
    ServerConfig,
    SessionDefaults,
    VadConfig,
    VideoConfig,
    WebRtcConfig,
)

__all__ = [
    "ENV_PREFIX",
    "AuthConfig",
    "Config",
    "DrainConfig",
    "EchoGuardConfig",
    "EffectiveSetting",
    "LimitsConfig",
    "LoadedConfig",
    "ModelsConfig",
    "ObservabilityConfig",
    "ServerConfig",
    "SessionDefaults",
    "VadConfig",
    "VideoConfig",
    "WebRtcConfig",
    "load",
    "misspelt",
    "shipped",
]
