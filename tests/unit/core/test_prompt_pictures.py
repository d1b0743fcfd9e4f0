"""Pictures in items: what is in them is asked for when they come, and no prompt is made while that is awaited."""

import pytest

from session_server.core import actions as a, events as e
from session_server.core.conversation import (
    ImageContent,
    InputAudioContent,
    ItemStatus,
    Message,
    Role,
    TextContent,
)
from session_server.core.settings import CoreParams, Hearing, ResponseOverrides
from tests.unit.core.drive import MANUAL, SERVER_VAD, Drive

pytestmark = pytest.mark.unit

URL = "data:image/jpeg;base64,AAAA"


def show(drive: Drive, *content: object, item_id: str = "item_p") -> None:
    parts = content or (ImageContent(URL),)
    drive.feed(e.ItemCreated(Message(item_id, Role.USER, ItemStatus.COMPLETED, parts)))


def prompt(drive: Drive) -> list[str]:
    return [message.content for message in drive.last(a.StartGeneration).messages]


def test_a_picture_is_looked_at_once_and_its_answer_waits_for_that():
    drive = Drive(MANUAL, sees=True)
    show(drive, TextContent("What is this?"), ImageContent(URL))
    look = drive.one(a.AnalyseImage)
    assert look.image_url == URL
    drive.respond()
    assert drive.take(a.StartGeneration) == []
    drive.feed(e.PictureSeen(look.work_id, "Detected: 1 cat."))
    assert prompt(drive) == ["What is this?\n[Picture: Detected: 1 cat.]"]
    drive.feed(e.PictureSeen(look.work_id, "Detected: 1 dog."))
    assert len(drive.take(a.StartGeneration)) == 1


def test_a_server_without_eyes_asks_nothing_and_waits_for_nothing():
    drive = Drive(MANUAL)
    show(drive, TextContent("What is this?"), ImageContent(URL))
    drive.respond()
    assert drive.take(a.AnalyseImage) == []
    assert prompt(drive) == ["What is this?"]


def test_an_answer_waits_for_all_pictures_of_an_item():
    drive = Drive(MANUAL, sees=True)
    show(drive, ImageContent(URL), TextContent("Which is red?"), ImageContent(URL + "BBBB"))
    drive.respond()
    first, second = drive.take(a.AnalyseImage)
    drive.feed(e.PictureSeen(second.work_id, "red"))
    assert drive.take(a.StartGeneration) == []
    drive.feed(e.PictureSeen(first.work_id, "green"))
    assert prompt(drive) == ["[Picture: green]\nWhich is red?\n[Picture: red]"]


def test_an_answer_waits_for_all_sounds_of_an_item():
    """It began with the first words that came, and never heard the others."""
    drive = Drive(MANUAL)
    sound = InputAudioContent(0, 16_000, None, appended=False)
    show(drive, sound, sound)
    drive.respond()
    first, second = drive.take(a.RecogniseRange)
    drive.feed(e.TranscriptReady(first.work_id, "one"))
    assert drive.take(a.StartGeneration) == []
    drive.feed(e.TranscriptReady(second.work_id, "two"))
    assert prompt(drive) == ["one\ntwo"]


@pytest.mark.parametrize(("code", "told"), [("invalid_value", 1), ("server_error", 0)])
def test_a_picture_that_cannot_be_looked_at_holds_up_nobody(code: str, told: int):
    drive = Drive(MANUAL, sees=True)
    show(drive, TextContent("And this?"), ImageContent(URL))
    rid = drive.respond()
    drive.feed(
        e.WorkFailed(drive.one(a.AnalyseImage).work_id, code, "The picture is no whole picture.")
    )
    assert prompt(drive) == ["And this?\n[Picture: it could not be looked at]"]
    errors = drive.take(a.AnnounceError)
    assert [(x.code, x.param) for x in errors] == [(code, "item.content[1].image_url")] * told
    drive.say(rid, ["I", "see"])
    drive.finish(rid)
    assert drive.session.item("item_p").content[1].seen == "it could not be looked at"


def test_eyes_that_do_not_answer_are_waited_for_only_so_long():
    drive = Drive(MANUAL, CoreParams(looking_ms=5_000), sees=True)
    show(drive)
    drive.respond()
    drive.wait(4_900)
    assert drive.take(a.StartGeneration) == []
    drive.wait(200)
    assert prompt(drive) == ["[Picture: it could not be looked at]"]
    assert drive.counted("stuck_sessions", "picture") == 1
    assert drive.one(a.CancelWork).work_id == drive.one(a.AnalyseImage).work_id


def test_a_deleted_picture_is_not_waited_for():
    drive = Drive(MANUAL, sees=True)
    show(drive)
    drive.typed("hello")
    drive.respond()
    drive.feed(e.ItemDeleted("item_p", "ev"))
    assert prompt(drive) == ["hello"]
    assert drive.one(a.CancelWork).work_id == drive.one(a.AnalyseImage).work_id


@pytest.mark.parametrize("hearing", [Hearing(), Hearing(natively=True, words=False)])
def test_no_answer_is_drafted_while_a_picture_is_looked_at(hearing: Hearing):
    drive = Drive(SERVER_VAD, sees=True, hearing=hearing)
    drive.speak(800)
    show(drive)
    drive.hush(300)
    if hearing.words:
        drive.transcribe("what is this")
    drive.hush(100)
    assert drive.take(a.StartGeneration) == []
    drive.hush(400)
    assert len(drive.take(a.AnnounceResponseCreated)) == 1
    assert drive.take(a.StartGeneration) == []
    drive.feed(e.PictureSeen(drive.one(a.AnalyseImage).work_id, "1 cat"))
    assert "[Picture: 1 cat]" in prompt(drive)


def test_a_draft_that_did_not_know_of_the_picture_is_dropped():
    drive = Drive(SERVER_VAD, sees=True)
    drive.speak(800)
    drive.hush(200)
    drive.transcribe("what is this")
    drive.hush(100)
    draft = drive.one(a.StartGeneration)
    show(drive)
    drive.hush(500)
    assert drive.one(a.CancelGeneration).response_id == draft.response_id
    drive.feed(e.PictureSeen(drive.one(a.AnalyseImage).work_id, "1 cat"))
    assert "[Picture: 1 cat]" in prompt(drive)


def test_a_thinker_that_hears_is_told_of_pictures_too():
    drive = Drive(MANUAL, sees=True, hearing=Hearing(natively=True))
    show(drive, TextContent("What is this?"), ImageContent(URL))
    drive.respond()
    drive.feed(e.PictureSeen(drive.one(a.AnalyseImage).work_id, "1 cat"))
    assert prompt(drive) == ["What is this?", "[Picture: 1 cat]"]


def test_pictures_too_big_to_be_shown_again_were_kept_for_as_long_as_the_session():
    """Fifteen MiB each, and a conversation holds a thousand items."""
    drive = Drive(MANUAL, sees=True)
    big = URL + "A" * (256 * 1024)
    show(drive, TextContent("What is this?"), ImageContent(big, "low"))
    look = drive.one(a.AnalyseImage)
    assert look.image_url == big
    for told in (drive.one(a.AnnounceItemAdded).item, drive.session.item("item_p")):
        assert told.content == (TextContent("What is this?"), ImageContent(None, "low"))
    drive.feed(e.PictureSeen(look.work_id, "1 cat"))
    drive.respond()
    assert prompt(drive) == ["What is this?\n[Picture: 1 cat]"]
    show(drive, ImageContent(URL), item_id="item_q")
    assert drive.session.item("item_q").content == (ImageContent(URL),)


def test_a_picture_that_comes_while_an_answer_waits_for_words_is_waited_for_too():
    """It entered the prompt unseen."""
    drive = Drive(MANUAL, sees=True)
    show(drive, InputAudioContent(0, 16_000, None, appended=False), item_id="item_said")
    drive.respond()
    show(drive, ImageContent(URL), item_id="item_shown")
    drive.transcribe("What is this?")
    assert drive.take(a.StartGeneration) == []
    drive.feed(e.PictureSeen(drive.one(a.AnalyseImage).work_id, "Detected: 1 cat."))
    assert prompt(drive) == ["What is this?", "[Picture: Detected: 1 cat.]"]


def test_pictures_that_keep_coming_do_not_hold_up_an_answer_for_ever():
    drive = Drive(MANUAL, CoreParams(looking_ms=2_000), sees=True)
    show(drive, ImageContent(URL), item_id="item_0")
    drive.respond()
    looks = drive.take(a.AnalyseImage)
    for number in range(1, 4):
        drive.wait(900)
        show(drive, ImageContent(URL), item_id=f"item_{number}")
        drive.feed(e.PictureSeen(looks[-1].work_id, "a wall"))
        looks = drive.take(a.AnalyseImage)
    assert len(drive.take(a.StartGeneration)) == 1


def test_an_answer_to_a_picture_that_its_input_refers_to_waits_for_that():
    drive = Drive(MANUAL, sees=True)
    show(drive, TextContent("What is this?"), ImageContent(URL), item_id="item_shown")
    show(drive, ImageContent(URL), item_id="item_other")
    item = drive.session.item("item_shown")
    assert item is not None
    drive.feed(e.ResponseRequested(ResponseOverrides(out_of_band=True), (item,)))
    shown, other = drive.take(a.AnalyseImage)
    assert drive.take(a.StartGeneration) == []
    drive.feed(e.PictureSeen(other.work_id, "a dog"))
    assert drive.take(a.StartGeneration) == []
    drive.feed(e.PictureSeen(shown.work_id, "a cat"))
    assert prompt(drive) == ["What is this?\n[Picture: a cat]"]


def test_an_answer_to_audio_that_its_input_refers_to_gets_the_words_that_came_since():
    drive = Drive(MANUAL)
    show(drive, InputAudioContent(0, 16_000, None), item_id="item_said")
    item = drive.session.item("item_said")
    assert item is not None
    drive.feed(e.ResponseRequested(ResponseOverrides(out_of_band=True), (item,)))
    assert drive.take(a.StartGeneration) == []
    drive.transcribe("Good morning.")
    assert prompt(drive) == ["Good morning."]
