"""What the callers' tests (test_image_decoding, test_frame_gate_decode) do not show."""

import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from session_server.types.errors import BadPicture
from session_server.video.picture_limits import MOST_SCANS, PictureLimits, opened, turn_upright
from tests.encoded_pictures import encoded, half_red, jpeg_of_scans

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


def test_a_jpeg_of_thousands_of_empty_scans_is_not_decoded() -> None:
    """180 kB of them, 3000 pixels square, held the thread of all cameras up for nine seconds."""
    for data in (
        jpeg_of_scans(640, 480, MOST_SCANS + 1),
        # where a decoder looks for the next marker, it passes over what is none, or has no length
        jpeg_of_scans(640, 480, MOST_SCANS + 1).replace(
            b"\xff\xda", b"\xff\x02\xff\xff\xd0\xff\xff\xda"
        ),
    ):
        with (
            pytest.raises(BadPicture, match=f"is in more than {MOST_SCANS} scans"),
            opened(data, LIMITS) as image,
        ):
            image.load()


def test_usual_scans_and_what_stands_beside_them_are_no_fault() -> None:
    scan = b"\xff\xda\0\x02" * (MOST_SCANS + 1)
    for data in (
        jpeg_of_scans(640, 480, MOST_SCANS),
        encoded(half_red(), progressive=True),
        encoded(half_red(), comment=scan),
        encoded(half_red()) + scan,
    ):
        with opened(data, LIMITS) as image:
            image.load()


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
