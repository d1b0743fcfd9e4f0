"""What the callers' tests (engines/vision/test_picture.py, video/test_decode.py) do not show."""

import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from session_server.pictures import BadPicture, PictureLimits, opened, turn_upright
from tests.encoded_pictures import encoded, half_red

pytestmark = pytest.mark.unit

LIMITS = PictureLimits(100_000, 1_000_000, ("JPEG", "PNG"))


def test_what_fails_while_it_is_decoded_is_a_bad_picture() -> None:
    with pytest.raises(BadPicture, match="is no whole JPEG, PNG picture"):  # noqa: SIM117
        with opened(encoded(half_red()), LIMITS):
            raise OSError("broken data stream")


def test_only_the_formats_that_are_named_are_opened() -> None:
    with (
        pytest.raises(BadPicture, match="is no whole JPEG, PNG picture"),
        opened(encoded(half_red(), "GIF"), LIMITS),
    ):
        pass


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """They take turns a thousand times as often."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 1000)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_that_look_at_once_leave_the_warning_filters_alone() -> None:
    """Each saved the filters of the other, and the last one restored them: then nothing in the process was warned of."""
    data = encoded(half_red())
    before = list(warnings.filters)

    def look() -> None:
        for _ in range(200):
            with opened(data, LIMITS) as image:
                image.load()
                turn_upright(image)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(warnings.filters) == before
