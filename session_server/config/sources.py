"""Sources of the configuration: defaults, a YAML file, the environment, flags.

Later sources, in this order, win key by key, and every effective value remembers the source that
set it. Variables are `SESSION_SERVER__SECTION__KEY=value`, the value in YAML
(`SESSION_SERVER__SERVER__PORT=9000`, `SESSION_SERVER__AUTH__KEYS='[a, b]'`). With one underscore
only a few variables mean something; others that look like ours are found, since such a typing slip
would silently change nothing.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml

from engines.graph import Graph
from session_server.config import limits
from session_server.config.shape import Where, build, leaves, require_plain
from session_server.config.tree import SECRET_KEYS, Config
from session_server.types.errors import ConfigError

ENV_PREFIX = "SESSION_SERVER__"
DEFAULT_FILE = "cpu.yaml"
_MAX_FILE_BYTES = 1024 * 1024
_SECRET = re.compile(r"(^|[._])(key|api_key|token|password|secret|authorization)$", re.IGNORECASE)
_USER_IN_ADDRESS = re.compile(r"://[^/\s]*@|[?&](api_?)?(key|token)=", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """One effective value, as `check` prints it; secrets are masked."""

    key: str
    value: object
    source: str


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The configuration, and who said what."""

    config: Config
    sources: Mapping[str, str]
    file: str

    def settings(self) -> list[EffectiveSetting]:
        """Every leaf with its source, in the order of definition."""
        flat = {f.name: getattr(self.config, f.name) for f in dataclasses.fields(self.config)}
        flat["graph"] = _graph_tree(self.config.graph)
        return [
            EffectiveSetting(key, _mask(key, value), _source(self.sources, key) or "default")
            for key, value in leaves(flat)
        ]


def load(
    file: Path | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> LoadedConfig:
    """Read all sources; `file` None means the default file. `flags` maps dotted keys to typed values, None for
    flags not given. Raises ConfigError, one line."""
    name, text = _read_file(file)
    return effective(name, _parse_file(name, text), env, flags)


def effective(
    name: str,
    tree: Mapping[str, object],
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> LoadedConfig:
    """The same for a file that was read: `tree` is what file `name` holds."""
    require_plain(name, tree)
    sources: dict[str, str] = {}
    merged: dict[str, object] = {}
    if "graph" not in tree:  # a file may leave the models alone and change only its own keys
        default = _parse_file(DEFAULT_FILE, shipped(DEFAULT_FILE) or "")
        _merge(merged, {"graph": default.get("graph")}, f"file {DEFAULT_FILE}", sources)
    _merge(merged, tree, f"file {name}", sources)
    for variable, value in sorted((env or {}).items()):
        if variable.startswith(ENV_PREFIX):
            _merge(merged, _from_variable(variable, value), f"variable {variable}", sources)
    for key, typed in (flags or {}).items():
        if typed is not None:
            _merge(merged, _nest(key.split("."), typed), f"flag for {key}", sources)

    def where(key: str) -> str:
        while key and _source(sources, key) is None:
            key = key.rpartition(".")[0]
        return _source(sources, key) or "default"

    sections = {key: value for key, value in merged.items() if key != "graph"}
    graph = _graph(merged.get("graph"), where)
    config: Config = build(Config, {**sections, "graph": graph}, where)
    limits.check(config, where)
    _check_duplex(config, where)
    return LoadedConfig(config, sources, name)


def _check_duplex(config: Config, where: Where) -> None:
    """What does not go together with a duplex graph."""
    if config.graph.duplex is None:
        return
    if config.server.workers != 1:
        key = "server.workers"
        raise ConfigError(f"{key}: must be 1 with a graph of kind duplex ({where(key)})")
    if config.observability.record_file is not None:
        key = "observability.record_file"
        raise ConfigError(f"{key}: sessions of a duplex graph are not recorded ({where(key)})")


def _graph(section: object, where: Where) -> Graph:
    if not isinstance(section, dict):
        raise ConfigError(f"graph: must be a section of stages and edges ({where('graph')})")
    try:
        return Graph.from_mapping(section)
    except ConfigError as error:
        raise ConfigError(f"{error} ({where(str(error).partition(':')[0])})") from None


def shipped_folder(name: str) -> Traversable:
    """A folder that comes with the package: inside an installed one, beside it in a checkout. It may not be there."""
    package = resources.files("session_server")
    inside = package / name
    return inside if inside.is_dir() else package.joinpath("..", name)


def shipped(name: str) -> str | None:
    """Text of a file of `configs/`; None: no such file."""
    file = shipped_folder("configs") / name
    return file.read_text(encoding="utf-8") if file.is_file() else None


def _read_file(file: Path | None) -> tuple[str, str]:
    if file is None:
        text = shipped(DEFAULT_FILE)
        if text is None:
            raise ConfigError(f"{DEFAULT_FILE}: the default configuration file is not installed")
        return DEFAULT_FILE, text
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigError(f"{file}: is too large for a configuration file")
        return str(file), file.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = shipped(file.name) if file.parent in (Path(), Path("configs")) else None
        if text is None:
            raise ConfigError(f"{file}: no such file") from None
        return file.name, text
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError(f"{file}: {reason}") from None


def _parse_file(name: str, text: str) -> dict[str, object]:
    tree = _from_yaml(text, name, "not valid YAML")
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{name}: must hold named sections, not {type(tree).__name__}")
    return tree


def _from_yaml(text: str, name: str, problem: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: {problem}: {_one_line(error)}") from None
    except ValueError as error:  # no such date, or a number of thousands of digits
        raise ConfigError(f"{name}: {problem}: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{name}: {problem}: nested too deeply") from None


def _from_variable(variable: str, text: str) -> dict[str, object]:
    path = variable[len(ENV_PREFIX) :].lower().split("__")
    if not all(path):
        raise ConfigError(f"{variable}: must look like {ENV_PREFIX}SECTION__KEY")
    tree = _nest(path, _from_yaml(text, variable, "not a YAML value"))
    require_plain(variable, tree)
    return tree


def _nest(path: list[str], value: object) -> dict[str, object]:
    for name in reversed(path):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def _merge(
    into: dict[str, object],
    new: Mapping[str, object],
    source: str,
    sources: dict[str, str],
    prefix: str = "",
) -> None:
    for key, value in new.items():
        dotted = f"{prefix}{key}"
        old = into.get(key)
        if isinstance(value, dict):
            if not isinstance(old, dict):
                old = {}
                into[key] = old
            sources.setdefault(dotted, source)
            _merge(old, value, source, sources, f"{dotted}.")
        elif value is None and isinstance(old, dict):
            continue  # an empty section in a file changes nothing
        else:
            into[key] = value
            sources[dotted] = source


def _graph_tree(graph: Graph) -> dict[str, object]:
    """The graph in the shape of its section, defaults filled in."""
    if graph.duplex is not None:
        spec = {f.name: getattr(graph.duplex, f.name) for f in dataclasses.fields(graph.duplex)}
        return {"kind": "duplex", **spec, "options": dict(graph.duplex.options)}
    stages = {
        spec.stage.value: {
            "engine": spec.engine,
            "max_batch": spec.max_batch,
            "placement": spec.placement.value,
            "step_limit_s": spec.step_limit_s,
            "niceness": spec.niceness,
            "hears": spec.hears,
            "options": dict(spec.options),
            "device": spec.device,
        }
        for spec in graph.stages
    }
    edges = [
        f"{edge.source.value} -> {edge.target.value}: {edge.capacity} {edge.unit.value}s"
        for edge in graph.edges
    ]
    return {"stages": stages, "edges": edges}


def _source(sources: Mapping[str, str], key: str) -> str | None:
    """The source of `key`: its own, or for an item of a list that of the list."""
    key = key.split("[")[0]
    return sources.get(key)


def _mask(key: str, value: object) -> object:
    if value is None:
        return value
    if key not in SECRET_KEYS:
        return _without_secrets(key, value)
    return f"({len(value)} configured)" if isinstance(value, tuple) else "(configured)"


def _without_secrets(key: str, value: object) -> object:
    """Options of engines hold no keys; one that stands there all the same is refused, and not shown before."""
    secret = key.startswith("graph.") and _SECRET.search(key) is not None
    if isinstance(value, str) and (secret or _USER_IN_ADDRESS.search(value)):
        return "(hidden)"
    return value


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    place = f" at line {mark.line + 1}" if mark is not None else ""
    return " ".join(f"{problem}{place}".split())


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
