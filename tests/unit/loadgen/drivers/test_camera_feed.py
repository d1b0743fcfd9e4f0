"""A camera in use: paced by deadlines, newest wins, never in the way of sound."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from loadgen.camera import Film
from loadgen.drivers.camera_feed import Cameras, FilmFeed, filming
from loadgen.records import FilmFigures
from session_server.simulation.spec import CameraUse
from session_server.types.audio import NS_PER_S
from tests.patient_loop import LoopClock
from tests.until import until

pytestmark = pytest.mark.unit

FILM = Film(10.0, tuple(b"frame %d" % number for number in range(10)))
USE = CameraUse(fps=10.0)
TENTH = NS_PER_S // 10


def number_of(message: str | None) -> int:
    assert message is not None
    event = json.loads(message)
    assert event["type"] == "input_image_buffer.append"
    return int(base64.b64decode(event["image"]).split()[1].split(b"\0")[0])


def feed(user: int = 0) -> tuple[FilmFeed, FilmFigures]:
    figures = FilmFigures()
    return FilmFeed(Cameras.of(USE, FILM), user, 0, figures), figures


def test_each_frame_comes_at_its_time_and_the_film_begins_again():
    camera, figures = feed()
    sent = []
    for _ in range(12):
        at = camera.due()
        assert camera.take(at - 1000, True) is None, "not before its time"
        sent.append(number_of(camera.take(at, True)))
    assert sent == [*range(10), 0, 1]
    assert (figures.sent, figures.dropped, figures.missed) == (12, 0, 0)
    assert camera.due() == 12 * TENTH


@pytest.mark.parametrize("fps", [0.1, 7.0, 15.0, 29.97, 240.0])
def test_a_frame_is_there_at_the_instant_at_which_it_is_due(fps: float):
    figures = FilmFigures()
    camera = FilmFeed(Cameras.of(CameraUse(fps=fps), FILM), 0, 123_456_789, figures)
    for _ in range(500):
        assert camera.take(camera.due(), True) is not None
    assert (figures.sent, figures.missed) == (500, 0)


def test_while_something_waits_to_leave_frames_are_dropped_and_the_newest_wins():
    camera, figures = feed()
    assert camera.take(0, True) is not None
    assert [camera.take(k * TENTH, False) for k in (1, 2, 3)] == [None] * 3
    assert number_of(camera.take(4 * TENTH, True)) == 4
    assert (figures.sent, figures.dropped) == (2, 3)


def test_who_comes_late_sends_the_newest_frame_and_counts_the_others():
    camera, figures = feed()
    assert number_of(camera.take(7 * TENTH + 5, True)) == 7
    assert figures.missed == 7
    assert camera.due() == 8 * TENTH


def test_users_are_at_different_places_of_the_film():
    begun = {number_of(feed(user)[0].take(0, True)) for user in range(4)}
    assert len(begun) > 2


@pytest.mark.parametrize(
    ("share", "users", "those"),
    [(4 / 12, 12, [2, 5, 8, 11]), (1.0, 3, [0, 1, 2]), (0.0, 3, []), (0.5, 4, [1, 3])],
)
def test_cameras_are_evenly_spread(share: float, users: int, those: list[int]):
    use = CameraUse(share=share)
    assert [user for user in range(users) if use.belongs_to(user)] == those


@pytest.mark.parametrize("users", range(1, 60))
def test_as_many_users_as_were_asked_for_have_one(users: int):
    for wanted in range(users + 1):
        use = CameraUse(share=wanted / users)
        assert sum(use.belongs_to(user) for user in range(users)) == wanted


def test_a_camera_that_is_off_belongs_to_users_who_do_not_film():
    off = Cameras.of(CameraUse(kind="none"), None)
    assert off.use.belongs_to(0)
    assert not off.films(0)


class User:
    films = True
    filming = False

    def on_filming(self) -> None:
        """Replaced by whoever films."""


class Way:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.full = False

    def waiting(self) -> int:
        return 1 if self.full else 0

    async def send(self, message: str) -> None:
        self.sent.append(message)


@pytest.mark.asyncio
@pytest.mark.parametrize("already", [False, True])
async def test_nothing_is_sent_before_the_server_agrees_nor_after_the_user_has_left(already: bool):
    figures, clock, user, way = FilmFigures(), LoopClock(), User(), Way()
    fast = Cameras.of(CameraUse(fps=200.0), FILM)
    user.filming = already
    async with filming(lambda: FilmFeed(fast, 0, clock.now(), figures), user, way, clock):
        await asyncio.sleep(0.05)
        assert bool(way.sent) is already
        user.filming = True
        user.on_filming()
        await until(lambda: len(way.sent) >= 3)
        way.full = True
        sent = len(way.sent)
        await until(lambda: figures.dropped >= 3)
        assert len(way.sent) == sent
    dropped = figures.dropped
    await asyncio.sleep(0.05)
    assert (len(way.sent), figures.dropped) == (sent, dropped)
    assert figures.cameras == 1


@pytest.mark.asyncio
async def test_who_has_no_camera_makes_no_task():
    user, tasks = User(), len(asyncio.all_tasks())
    user.films = False
    async with filming(lambda: pytest.fail("no camera"), user, Way(), LoopClock()):
        assert len(asyncio.all_tasks()) == tasks


def test_no_two_frames_have_the_same_bytes():
    """A film went round, and the server remembered what it had seen in it: looks cost nothing."""
    sent = []
    for user in (0, 1):
        camera, _ = feed(user)
        for number in range(3 * len(FILM.frames)):
            message = camera.take(camera.due(), True)
            assert message is not None, number
            sent.append(json.loads(message)["image"])
    assert len(set(sent)) == len(sent)
    pictures = [base64.b64decode(image, validate=True) for image in sent]
    assert all(picture.startswith(FILM.frames) for picture in pictures)
