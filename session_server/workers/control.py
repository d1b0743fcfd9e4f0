"""What supervisor and worker say to each other beside the host messages.

`ask` numbers a question of either side; its answer carries the same number. Times are unix seconds. Everything is msgpack on the
wire; `pack` and the two decoders are the only places that know it.
"""

from __future__ import annotations

import msgspec

from session_server.host.messages import ToHost, ToSession
from session_server.observability.multiprocess_metrics import FamilyCounts
from session_server.protocol.values import JsonObject


class Control(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Base of all of them."""


# -- worker -> supervisor


class WorkerListening(Control, frozen=True, tag=True):
    """The worker takes connections, and no sessions yet."""


class DoorIsOpen(Control, frozen=True, tag=True):
    """From now on it lets sessions in."""


class CannotStart(Control, frozen=True, tag=True):
    """A setting or a file is wrong: `message` is the one line that the user is to read."""

    message: str
    missing_models: bool = False


class MintSecret(Control, frozen=True, tag=True):
    """A new ephemeral key, with the session that it stands for in JSON: its integers may be larger than msgpack's. Answered by
    `Minted`."""

    ask: int
    session: bytes | None
    life_s: int


class FindSecret(Control, frozen=True, tag=True):
    """Answered by `Found`."""

    ask: int
    value: str


class AskReady(Control, frozen=True, tag=True):
    """Answered by `Ready`."""

    ask: int


class AskPage(Control, frozen=True, tag=True):
    """The metrics of the whole server. Answered by `Page`."""

    ask: int


class Counted(Control, frozen=True, tag=True):
    """A worker's own metrics. `ask` 0: nobody asked, it is time again."""

    ask: int
    families: list[FamilyCounts]


# -- supervisor -> worker


class Begin(Control, frozen=True, tag=True):
    """The first message to a worker. `config`: pickled, since it never leaves this machine and this user."""

    config: bytes
    started_at: int
    slot: int
    workers: int
    life: int
    port: int
    folder: str


class OpenDoor(Control, frozen=True, tag=True):
    """The engines are ready: let sessions in."""


class GoDown(Control, frozen=True, tag=True):
    """Drain and end. `forced`: without waiting for answers."""

    forced: bool = False


class Minted(Control, frozen=True, tag=True):
    ask: int
    value: str
    expires_at: int


class SecretFound(Control, frozen=True, tag=True):
    """`known` False: there is no such key, or it has expired. `session`: in JSON."""

    ask: int
    known: bool
    session: bytes | None = None
    expires_at: int = 0


class Ready(Control, frozen=True, tag=True):
    """`reasons`: what keeps the engines from working."""

    ask: int
    reasons: tuple[str, ...]


class MetricsPage(Control, frozen=True, tag=True):
    ask: int
    text: bytes


class AskCounts(Control, frozen=True, tag=True):
    """Answered by `Counted`."""

    ask: int


FromWorker = (
    ToHost
    | WorkerListening
    | DoorIsOpen
    | CannotStart
    | MintSecret
    | FindSecret
    | AskReady
    | AskPage
    | Counted
)
FromSupervisor = (
    ToSession | Begin | OpenDoor | GoDown | Minted | SecretFound | Ready | MetricsPage | AskCounts
)
Answer = Minted | SecretFound | Ready | MetricsPage | Counted

pack = msgspec.msgpack.Encoder().encode
_from_worker = msgspec.msgpack.Decoder(FromWorker)
_from_supervisor = msgspec.msgpack.Decoder(FromSupervisor)


def json_of(session: JsonObject | None) -> bytes | None:
    """A session of an ephemeral key, as it goes over the link."""
    return None if session is None else msgspec.json.encode(session)


def session_of(json: bytes | None) -> JsonObject | None:
    """What `json_of` was given."""
    return None if json is None else msgspec.json.decode(json, type=dict)


def read_from_worker(payload: bytes) -> FromWorker:
    """Raises msgspec.MsgspecError for what no worker says."""
    message: FromWorker = _from_worker.decode(payload)
    return message


def read_from_supervisor(payload: bytes) -> FromSupervisor:
    """Raises msgspec.MsgspecError for what no supervisor says."""
    message: FromSupervisor = _from_supervisor.decode(payload)
    return message
