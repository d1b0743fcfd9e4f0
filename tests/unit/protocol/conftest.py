"""What every protocol test starts from."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from session_server.protocol.session_config import (
    SessionConfig,
    SessionRules,
    session_rules,
    voices,
)
from session_server.protocol.session_update import apply_update, initial_config
from session_server.types.errors import ClientFault


@pytest.fixture
def rules() -> SessionRules:
    return session_rules(voices(["heart", "bella"]), instructions="Be kind.")


@pytest.fixture
def config(rules: SessionRules) -> SessionConfig:
    return initial_config(rules)


@pytest.fixture
def fault_of() -> Callable[..., ClientFault]:
    """Calls a function that has to raise a ClientFault, and returns it."""

    def call(function, *args, **kwargs) -> ClientFault:
        with pytest.raises(ClientFault) as caught:
            function(*args, **kwargs)
        json.dumps(caught.value.message)
        return caught.value

    return call


@pytest.fixture
def update(rules: SessionRules):
    """Applies a session.update to a config; `type` is filled in."""

    def apply(config: SessionConfig, session: dict, **kwargs) -> SessionConfig:
        return apply_update(config, {"type": config.type, **session}, rules, **kwargs)

    return apply
