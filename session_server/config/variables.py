"""Environment variables that look like ours and are not: a typing slip that would change nothing, silently.

Keys of the configuration are spelled with two underscores (`SESSION_SERVER__SERVER__PORT`); with one only the
variables below mean something.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from session_server.config.sources import ENV_PREFIX

KNOWN = frozenset(
    {
        "SESSION_SERVER_MODELS",
        "SESSION_SERVER_TEST_DATA",
        "SESSION_SERVER_TEST_ARTEFACTS",
        "SESSION_SERVER_SOAK",
        "SESSION_SERVER_SPEECH",
    }
)
_PREFIX = "SESSION_SERVER_"


def misspelt(variables: Iterable[str], keys: Iterable[str]) -> list[str]:
    """One line for each variable that begins like ours and is not known. `keys`: the dotted keys there are."""
    strange = sorted(
        name
        for name in variables
        if name.startswith(_PREFIX) and not name.startswith(ENV_PREFIX) and name not in KNOWN
    )
    dotted = list(keys) if strange else []
    return [f"{name} is not known and changes nothing{_hint(name, dotted)}" for name in strange]


def _hint(name: str, keys: list[str]) -> str:
    """The closest key: one that ends like the name, else one that is spelled nearly so."""
    asked = name[len(_PREFIX) :].lower()
    flat = {key.replace(".", "_"): key for key in keys}
    ends = [key for key in flat if key == asked or key.endswith(f"_{asked}")]
    close = ends or difflib.get_close_matches(asked, flat, n=1, cutoff=0.75)
    if not close:
        return ""
    spelled = flat[min(close, key=len)].upper().replace(".", "__")
    return f"; did you mean {ENV_PREFIX}{spelled}?"
