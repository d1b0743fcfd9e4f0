"""The host's side of the links: whose a session is, keys for all, and what a lost worker leaves behind."""

from __future__ import annotations

import asyncio

import pytest

from session_server.core.actions import CancelGeneration
from session_server.host.messages import (
    CloseSession,
    Finished,
    FromSession,
    OpenSession,
    Receive,
    SessionOpened,
    SessionRefused,
    ToHost,
    ToSession,
)
from session_server.http.auth import ClientSecrets
from session_server.observability.metrics import Metrics
from session_server.observability.multiprocess_metrics import Totals, counts_of
from session_server.workers.control import (
    AskCounts,
    AskPage,
    AskReady,
    Counted,
    FindSecret,
    MetricsPage,
    Minted,
    MintSecret,
    Ready,
    SecretFound,
    json_of,
    session_of,
)
from session_server.workers.host_rpc import Desk, Peer
from tests.unit.workers.conftest import Sent
from tests.until import until

pytestmark = pytest.mark.unit


class Office:
    """A desk with two workers; `opened`, `attached` and `posted` are what came to the host.

    It refuses the sessions in `full`.
    """

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.posted: list[ToHost] = []
        self.attached: dict[str, Receive] = {}
        self.full: set[str] = set()
        self.now_s = 1000
        self.metrics = Metrics(strict=True)
        self.desk = Desk(
            self.posted.append,
            self.open,
            self.attached.__setitem__,
            lambda: ["stage asr is down"],
            ClientSecrets(2),
            Totals(self.metrics),
            lambda: self.now_s,
        )
        self.sent = [Sent(), Sent()]
        self.peers = [Peer(sent) for sent in self.sent]
        for peer in self.peers:
            self.desk.joined(peer)

    def open(self, session: str) -> SessionOpened | SessionRefused:
        self.opened.append(session)
        if session in self.full:
            return SessionRefused(session, "full", 5, full=True)
        return SessionOpened(session)

    def say(self, message: ToSession) -> None:
        """From the host."""
        self.attached[message.session](message)

    def mint(self, worker: int, **session: object) -> str:
        self.desk.take(self.peers[worker], MintSecret(1, json_of(session or None), 10))
        return self.sent[worker].of(Minted)[-1].value

    def find(self, worker: int, value: str) -> SecretFound:
        self.desk.take(self.peers[worker], FindSecret(2, value))
        return self.sent[worker].of(SecretFound)[-1]


def test_a_message_goes_to_the_worker_that_has_the_session_and_to_no_other():
    office = Office()
    office.desk.take(office.peers[0], OpenSession("a"))
    office.desk.take(office.peers[1], OpenSession("b"))
    for name in ("a", "b"):
        office.say(Finished(name, "r", "stop"))
    for sent, name in zip(office.sent, "ab", strict=True):
        assert sent.messages == [SessionOpened(name), Finished(name, "r", "stop")]


def test_a_worker_cannot_touch_a_session_of_another_one():
    office = Office()
    office.desk.take(office.peers[0], OpenSession("a"))
    office.desk.take(office.peers[1], OpenSession("a"))
    office.desk.take(office.peers[1], FromSession("a", CancelGeneration("r")))
    office.desk.take(office.peers[1], CloseSession("a"))
    assert (office.opened, office.posted) == (["a"], [])
    assert office.sent[1].messages == []
    assert len(office.desk) == 1


def test_a_session_that_was_refused_or_closed_is_forgotten():
    office = Office()
    office.full = {"a"}
    for name in ("a", "b"):
        office.desk.take(office.peers[0], OpenSession(name))
    assert office.sent[0].of(SessionRefused) == [SessionRefused("a", "full", 5, full=True)]
    assert list(office.attached) == ["b"]
    office.desk.take(office.peers[0], CloseSession("a"))
    office.desk.take(office.peers[0], CloseSession("b"))
    assert len(office.desk) == 0
    assert office.posted == [CloseSession("b")]


def test_a_lost_worker_leaves_no_session_behind_and_the_others_keep_theirs():
    office = Office()
    for peer, name in ((0, "a"), (0, "b"), (1, "c")):
        office.desk.take(office.peers[peer], OpenSession(name))
    office.desk.left(office.peers[0])
    office.desk.left(office.peers[0])
    assert office.posted == [CloseSession("a"), CloseSession("b")] or office.posted == [
        CloseSession("b"),
        CloseSession("a"),
    ]
    office.say(Finished("c", "r", "stop"))
    assert office.sent[1].of(Finished) == [Finished("c", "r", "stop")]


def test_a_key_of_one_worker_is_good_at_every_other_until_it_expires():
    office = Office()
    value = office.mint(0, type="realtime", instructions="x")
    found = office.find(1, value)
    assert (found.known, session_of(found.session)) == (
        True,
        {"type": "realtime", "instructions": "x"},
    )
    assert found.expires_at == 1010
    office.now_s = 1010
    assert not office.find(1, value).known
    assert not office.find(0, "ek_unknown").known


def test_the_bound_on_keys_holds_over_all_workers():
    office = Office()
    keys = [office.mint(k % 2) for k in range(3)]
    assert [office.find(0, key).known for key in keys].count(True) == 2


def test_every_worker_hears_the_same_reasons():
    office = Office()
    for peer, sent in zip(office.peers, office.sent, strict=True):
        office.desk.take(peer, AskReady(7))
        assert sent.of(Ready) == [Ready(7, ("stage asr is down",))]


def counting(kind: str) -> Metrics:
    made = Metrics(strict=True)
    made.session_ended(kind, 10)
    return made


@pytest.mark.asyncio
async def test_a_page_asked_for_at_one_worker_sums_all_and_asks_each_once():
    office = Office()
    for number in (1, 2):
        office.desk.take(office.peers[0], AskPage(number))
    await asyncio.sleep(0.01)
    for peer, sent in zip(office.peers, office.sent, strict=True):
        (asked,) = sent.of(AskCounts)
        office.desk.take(peer, Counted(asked.ask, counts_of(counting("closed"))))
    await until(lambda: len(office.sent[0].of(MetricsPage)) >= 2, every_s=0)
    pages = office.sent[0].of(MetricsPage)
    assert [page.ask for page in pages] == [1, 2]
    assert b'session_server_sessions_total{outcome="closed"} 2.0' in pages[0].text
    assert pages[0].text == pages[1].text


@pytest.mark.asyncio
async def test_a_worker_that_dies_while_it_is_asked_is_summed_as_it_last_spoke():
    office = Office()
    office.desk.take(office.peers[1], Counted(0, counts_of(counting("lost"))))
    office.desk.take(office.peers[0], AskPage(1))
    await asyncio.sleep(0.01)
    (asked,) = office.sent[0].of(AskCounts)
    office.desk.take(office.peers[0], Counted(asked.ask, counts_of(counting("lost"))))
    office.desk.left(office.peers[1])
    await until(lambda: office.sent[0].of(MetricsPage), every_s=0)
    text = office.sent[0].of(MetricsPage)[0].text
    assert b'session_server_sessions_total{outcome="lost"} 2.0' in text
