"""`check`: is everything here that a conversation needs? Each finding names itself and its cure.

Findings, in order, none of which stops the others: model files, what each engine needs, the port, the record, a whole spoken round trip through a
server of its own on loopback (the configured port stays free, nothing is recorded).
"""

from __future__ import annotations

import asyncio
import errno
import http.client
import logging
import socket
import time
from dataclasses import asdict, dataclass, field, replace

from engines import registry
from engines.base import Stage
from engines.graph import StageSpec
from engines.model_store.store import ModelStore
from session_server.client.models import fetch_command, missing_models, model_store, needs_models
from session_server.client.offline import OfflineResult, converse_once
from session_server.client.sound import Synthesiser
from session_server.config import Config
from session_server.duplex.engines import try_duplex
from session_server.duplex.transcription import by_its_key, recogniser
from session_server.host.stage_assembly import engine_of
from session_server.http.session_factory import hearing_of
from session_server.recording.record_file import RecordInUse, require_record
from session_server.types.errors import ConfigError, EngineFault, ModelsMissing, SessionServerError

_log = logging.getLogger(__name__)

QUESTION = "What is the capital city of France?"
_WITHIN_S = 60.0
_WITHIN_LOADING_S = 900.0
"""Where tens of gigabytes of weights are read first."""


START_ERRORS = (ConfigError, ModelsMissing, EngineFault)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `cure` says what to do when it is not ok."""

    name: str
    ok: bool
    detail: str
    cure: str = ""


@dataclass(slots=True)
class CheckReport:
    """All findings, and the round trip's figures."""

    findings: list[Finding] = field(default_factory=list)
    round_trip: OfflineResult | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self.findings)

    def as_json(self) -> dict[str, object]:
        """What `check --json` prints, but for the configuration."""
        return {
            "ok": self.ok,
            "findings": [asdict(finding) for finding in self.findings],
            "round_trip": None if self.round_trip is None else asdict(self.round_trip),
            "seconds": round(self.seconds, 2),
        }


async def check(config: Config) -> CheckReport:
    """Look at everything. Never raises for what it finds."""
    began = time.monotonic()
    report = CheckReport()
    models = _models(config)
    engines = await asyncio.to_thread(engine_findings, config)
    report.findings += [models, *engines, await asyncio.to_thread(_port, config)]
    if config.observability.record_file is not None:
        report.findings.append(await asyncio.to_thread(_record, config))
    lacking = next((finding for finding in (models, *engines) if not finding.ok), None)
    if config.graph.duplex is not None and not engines:
        trial = await asyncio.to_thread(try_duplex, config.graph.duplex, model_store(config))
        report.findings.append(Finding("duplex model", trial.ok, trial.detail, trial.cure))
    elif lacking is None:
        report.findings.append(await _round_trip(config, report))
    elif config.graph.duplex is None:
        what = "models are missing" if lacking is models else f"{lacking.name} cannot start"
        report.findings.append(Finding("round trip", False, f"not tried: {what}", lacking.cure))
    report.seconds = time.monotonic() - began
    return report


def explained(error: SessionServerError, config: Config) -> SessionServerError:
    """One of START_ERRORS, with where to look when an engine of the graph lacks something on this machine."""
    duplex, store = config.graph.duplex, model_store(config)
    asked = [(spec.engine, spec.engine_options) for spec in config.graph.stages]
    if duplex is not None:
        asked = [(duplex.engine, duplex.options)]
    if not any(registry.missing(name, options, store) for name, options in asked):
        return error
    return type(error)(f"{error}; `session-server check` with these settings says what helps")


def _models(config: Config) -> Finding:
    if not needs_models(config):
        return Finding("models", True, "none needed")
    store = model_store(config)
    missing = missing_models(config)
    if missing:
        return Finding(
            "models",
            False,
            f"not in {store.root}: {', '.join(missing)}",
            fetch_command(config),
        )
    return Finding("models", True, f"all in {store.root}")


def engine_findings(config: Config) -> list[Finding]:
    """A finding for each thing that an engine of the graph lacks, or does not know."""
    store = model_store(config)
    duplex = config.graph.duplex
    if duplex is not None:
        name = f"duplex ({duplex.engine})"
        found = [
            Finding(name, False, line, registry.cure(duplex.engine, line))
            for line in registry.missing(duplex.engine, duplex.options, store)
        ]
        beside = [] if duplex.words is None else stage_findings(recogniser(duplex.words), store)
        return found + [replace(of, detail=by_its_key(of.detail)) for of in beside]
    return [finding for spec in config.graph.stages for finding in stage_findings(spec, store)]


def stage_findings(spec: StageSpec, store: ModelStore) -> list[Finding]:
    name = f"{spec.stage.value} ({spec.engine})"
    lines = registry.missing(spec.engine, spec.engine_options, store)
    try:
        engine_of(spec, store)
    except ConfigError as error:  # an option, or a package, which was told already
        if not lines or isinstance(error.__cause__, ValueError):
            page = registry.family_of(spec.engine).page
            return [Finding(name, False, str(error), f"correct it; see {page}")]
    return [Finding(name, False, line, registry.cure(spec.engine, line)) for line in lines]


def _port(config: Config) -> Finding:
    host, port = config.server.host, config.server.port
    if port == 0:
        return Finding("port", True, "any free one")
    error = _why_not_bound(host, port)
    if error is None:
        return Finding("port", True, f"{port} of {host} is free")
    if _is_ours(host, port):
        return Finding("port", True, f"{port} is in use, by a server that answers")
    cure = "choose another: --port, or server.port"
    return Finding("port", False, f"{port} of {host}: {error.strerror}", cure)


def _record(config: Config) -> Finding:
    path = config.observability.record_file
    try:
        require_record(config.observability)
    except RecordInUse as error:
        if _is_ours(config.server.host, config.server.port):
            return Finding("record", True, f"{path} is in use, by a server that answers")
        return Finding("record", False, str(error), "stop that server, or choose another file")
    except ConfigError as error:
        return Finding("record", False, str(error), "choose another file, or null for none")
    return Finding("record", True, f"{path} can be written; it will hold what is said")


def require_port(config: Config) -> None:
    """Raise ConfigError, one line, when nobody can listen there: before anything slow is begun."""
    host, port = config.server.host, config.server.port
    error = _why_not_bound(host, port) if port != 0 else None
    if error is not None:
        in_use = error.errno == errno.EADDRINUSE
        problem = "is in use" if in_use else f"cannot be used: {error.strerror or error}"
        raise ConfigError(f"server.port: port {port} of {host} {problem}; --port chooses another")


def _why_not_bound(host: str, port: int) -> OSError | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def _is_ours(host: str, port: int) -> bool:
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    connection = http.client.HTTPConnection(name, port, timeout=1)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _cure_of(error: SessionServerError, config: Config) -> str:
    thinker = config.graph.stage(Stage.THINKER)
    if thinker is None:
        return "--debug shows more"
    family = registry.family_of(thinker.engine)
    own = isinstance(error, EngineFault) and thinker.engine in str(error)
    return f"{family.at_fault if own else '--debug shows more'}; see {family.page}"


async def _round_trip(config: Config, report: CheckReport) -> Finding:
    hearing = hearing_of(config.graph)
    within_s = _WITHIN_LOADING_S if hearing.natively else _WITHIN_S
    try:
        pcm = await asyncio.to_thread(Synthesiser().say, QUESTION)
        async with asyncio.timeout(within_s):
            result, _ = await converse_once(config, pcm)
    except SessionServerError as error:
        return Finding("round trip", False, str(error), _cure_of(error, config))
    except TimeoutError:
        return Finding("round trip", False, f"no answer within {within_s:g} s", "see the log")
    except Exception as error:
        _log.debug("the round trip failed", exc_info=True)
        detail = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Finding("round trip", False, detail, "--debug shows where")
    report.round_trip = result
    heard = f'heard "{result.transcript}", ' if hearing.words else ""
    heard += f"answered {result.reply_seconds:g} s of speech"
    ok = result.reply_seconds > 0 and (bool(result.transcript.strip()) or not hearing.words)
    detail = f"{heard}, first audio after {result.first_audio_ms:g} ms"
    return Finding("round trip", ok, detail, "" if ok else "the answer was empty; see the log")
