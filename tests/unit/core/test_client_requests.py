"""What clients ask for: exactly one answer or one error, with the protocol's codes and messages."""

from dataclasses import replace

import pytest

from session_server.core import actions as a, events as e
from session_server.core.conversation import (
    FunctionCall,
    FunctionCallOutput,
    ImageContent,
    InputAudioContent,
    ItemStatus,
    Message,
    OutputAudioContent,
    Role,
    TextContent,
)
from session_server.core.settings import CoreParams, Modality, ResponseOverrides
from session_server.core.turn_taking import TurnState
from session_server.types.tools import Tool, ToolChoice
from session_server.types.usage import TokenUsage
from tests.unit.core.drive import MANUAL, MS, Drive

pytestmark = pytest.mark.unit

ANSWER = [
    "AnnounceResponseCreated",
    "AnnounceRateLimits",
    "AnnounceOutputItemAdded",
    "AnnounceItemAdded",
    "AnnouncePartAdded",
    "AnnounceTextDelta",
    "AnnounceAudioDone",
    "AnnounceTextDone",
    "AnnouncePartDone",
    "AnnounceOutputItemDone",
    "AnnounceItemDone",
    "AnnounceResponseDone",
]


def error(d: Drive) -> tuple[str, str | None, str | None]:
    found = d.one(a.AnnounceError)
    return found.code, found.param, found.event_id


# -- responses


def test_response_is_announced_in_the_protocol_order():
    d = Drive(MANUAL)
    rid = d.answering(2)
    d.finish(rid)
    d.wait(3_000)
    assert d.kinds() == ANSWER
    view = d.one(a.AnnounceResponseDone).response
    assert (view.status, view.reason) == ("completed", None)
    assert view.usage == TokenUsage(10, 0, 0, 5, 7)
    assert view.output[0].content == (OutputAudioContent(d.one(a.AnnounceTextDone).text),)
    assert d.one(a.AnnounceItemDone).item.status is ItemStatus.COMPLETED


def test_done_waits_until_the_last_audio_was_handed_over():
    d = Drive(MANUAL)
    rid = d.answering(2)
    d.finish(rid)
    d.wait(999)
    assert not d.take(a.AnnounceResponseDone)
    d.wait(1)
    assert d.sent_samples(rid) == 2_000 * MS
    assert d.one(a.AnnounceResponseDone)
    d.wait(1_001)
    assert d.session.state is TurnState.LISTENING


def test_text_answer_has_no_audio_and_ends_at_once():
    d = Drive(MANUAL, modality=Modality.TEXT)
    rid = d.respond()
    d.feed(e.TextGenerated(rid, "Hello"))
    d.feed(e.AudioGenerated(rid, 0, b"\0" * 480))
    d.finish(rid)
    assert d.kinds() == [k for k in ANSWER if k != "AnnounceAudioDone"]
    assert d.one(a.AnnounceResponseDone).response.output[0].content == (TextContent("Hello"),)
    assert not d.take(a.SendAudio)
    assert d.session.state is TurnState.LISTENING


def test_second_create_is_refused_and_the_first_is_untouched():
    d = Drive(MANUAL)
    rid = d.respond()
    d.mark()
    d.feed(e.ResponseRequested(ResponseOverrides(), None, "r2"))
    found = d.one(a.AnnounceError)
    assert found.code == "conversation_already_has_active_response"
    assert found.message == (
        f"Conversation already has an active response in progress: {rid}. "
        "Wait until the response is finished before creating a new one."
    )
    assert found.event_id == "r2"
    assert d.kinds() == ["AnnounceError"]
    d.finish(rid)
    assert d.respond() != rid


def test_overrides_win_over_the_session():
    d = Drive(MANUAL, instructions="session", voice="heart", max_output_tokens=100)
    tool = Tool("f", "does", "{}")
    d.respond(
        instructions="own",
        tools=(tool,),
        tool_choice=ToolChoice("required"),
        modality=Modality.TEXT,
        voice="luna",
        max_output_tokens=7,
        metadata=(("k", "v"),),
    )
    started = d.one(a.StartGeneration)
    assert started.instructions == "own"
    assert started.tools == (tool,)
    assert started.tool_choice == ToolChoice("required")
    assert (started.modality, started.voice, started.max_output_tokens) == (
        Modality.TEXT,
        "luna",
        7,
    )
    assert d.one(a.AnnounceResponseCreated).response.metadata == (("k", "v"),)


def test_token_limit_makes_the_response_incomplete():
    d = Drive(MANUAL, modality=Modality.TEXT)
    rid = d.respond()
    d.feed(e.TextGenerated(rid, "Once upon"))
    d.finish(rid, "max_output_tokens")
    view = d.one(a.AnnounceResponseDone).response
    assert (view.status, view.reason) == ("incomplete", "max_output_tokens")
    assert view.output[0].status is ItemStatus.INCOMPLETE


def test_engine_fault_fails_the_response_and_the_session_goes_on():
    d = Drive(MANUAL)
    rid = d.answering(1)
    d.feed(e.GenerationFailed(rid, "server_error", "boom"))
    view = d.one(a.AnnounceResponseDone).response
    assert (view.status, view.error_code, view.error_message) == ("failed", "server_error", "boom")
    assert d.one(a.CancelGeneration).response_id == rid
    d.wait(1_000)
    assert d.session.state is TurnState.LISTENING
    d.finish(d.answering(1))
    d.wait(2_000)
    assert d.last(a.AnnounceResponseDone).response.status == "completed"


def test_failed_answer_keeps_the_words_that_were_handed_over():
    d = Drive(MANUAL)
    rid = d.answering(4)
    d.feed(e.GenerationFailed(rid, "server_error", "boom"))
    assert d.one(a.AnnounceItemDone).item.content == (OutputAudioContent("w0 w1 w2 w3 w4"),)


def test_admission_refusal_reaches_the_client_as_a_failed_response():
    d = Drive(MANUAL)
    d.feed(e.GenerationFailed(d.respond(), "inference_rate_limit_exceeded", "busy"))
    assert d.one(a.AnnounceResponseDone).response.error_code == "inference_rate_limit_exceeded"


def test_gap_in_the_engines_audio_fails_the_response():
    d = Drive(MANUAL)
    rid = d.answering(1)
    d.feed(e.AudioGenerated(rid, 25_000, b"\0" * 4_800))
    assert d.one(a.AnnounceResponseDone).response.status == "failed"


def test_engine_that_ignores_the_frontier_is_bounded():
    d = Drive(MANUAL)
    rid = d.respond()
    d.feed(e.AudioGenerated(rid, 0, bytes(2 * 24_000 * 70)))
    assert d.one(a.AnnounceResponseDone).response.status == "failed"


def test_events_after_the_end_of_generation_are_ignored():
    d = Drive(MANUAL)
    rid = d.answering(3)
    d.finish(rid)
    d.mark()
    d.feed(e.AudioGenerated(rid, 72_000, b"\0" * 4_800))
    d.finish(rid)
    assert d.session.snapshot(rid).generated == 72_000
    assert not d.take(a.AnnounceResponseDone)


# -- cancel


def test_cancel_right_behind_the_create_hits_the_pending_response():
    d = Drive(MANUAL)
    d.speak(320)
    d.feed(e.InputCommitted())
    rid = d.respond()
    d.feed(e.ResponseCancelled(None, "c1"))
    d.feed(e.ResponseCancelled(None, "c2"))
    view = d.one(a.AnnounceResponseDone).response
    assert (view.id, view.status, view.reason) == (rid, "cancelled", "client_cancelled")
    assert error(d) == ("response_cancel_not_active", None, "c2")
    d.transcribe("late")
    assert not d.take(a.StartGeneration)


def test_cancel_of_an_unknown_response_is_the_error_that_clients_compare():
    d = Drive(MANUAL)
    d.feed(e.ResponseCancelled("resp_x", "e6a"))
    found = d.one(a.AnnounceError)
    assert found.message.startswith("Cancellation failed: no active response found")
    assert (found.code, found.event_id) == ("response_cancel_not_active", "e6a")


def test_cancel_that_lost_the_race_is_an_error_and_nothing_else():
    d = Drive(MANUAL, modality=Modality.TEXT)
    rid = d.respond()
    d.finish(rid)
    d.mark()
    d.feed(e.ResponseCancelled(rid, "late"))
    assert d.kinds() == ["AnnounceError"]


def test_cancel_keeps_what_was_heard_and_counts_what_was_wasted():
    d = Drive(MANUAL)
    rid = d.answering(4)
    d.wait(1_100)
    d.feed(e.ResponseCancelled(rid))
    assert d.one(a.AnnounceItemDone).item.content == (OutputAudioContent("w0 w1 w2 w3 w4"),)
    assert d.counted("audio_wasted_seconds", "sent") == pytest.approx(1.0)
    assert d.counted("audio_wasted_seconds", "vocoded") == pytest.approx(1.9)


def test_out_of_band_response_runs_beside_and_cancel_without_id_spares_it():
    d = Drive(MANUAL)
    inner = d.respond()
    outer = d.respond(out_of_band=True, modality=Modality.TEXT)
    lanes = {x.response_id: x.lane for x in d.take(a.StartGeneration)}
    assert lanes == {inner: "default", outer: outer}
    d.feed(e.ResponseCancelled())
    assert d.one(a.AnnounceResponseDone).response.id == inner
    d.feed(e.TextGenerated(outer, "note"))
    assert not d.take(a.AnnounceItemAdded)
    d.finish(outer)
    view = d.last(a.AnnounceResponseDone).response
    assert (view.status, view.out_of_band) == ("completed", True)
    assert not d.take(a.AnnounceItemDone)
    d.typed("hi")
    assert len(d.take(a.AnnounceItemAdded)) == 1


def test_out_of_band_response_is_cancelled_by_its_id_on_its_own_lane():
    d = Drive(MANUAL)
    outer = d.respond(out_of_band=True)
    d.say(outer, ["one", "two"])
    d.feed(e.ResponseCancelled(outer))
    assert d.one(a.RaiseFence) == a.RaiseFence(outer, 2)
    assert d.session.epoch == 1
    assert not d.session.voice_locked
    assert d.one(a.AnnounceResponseDone).response.status == "cancelled"


def test_too_many_responses_at_once_are_refused_clearly():
    d = Drive(MANUAL, CoreParams(max_out_of_band=2))
    for _ in range(3):
        d.respond(out_of_band=True)
    assert d.one(a.AnnounceResponseDone).response.error_code == "inference_rate_limit_exceeded"


def test_input_items_replace_the_conversation_as_context():
    d = Drive(MANUAL)
    d.typed("in the conversation")
    own = Message("x", Role.USER, ItemStatus.COMPLETED, (TextContent("only this"),))
    d.feed(e.ResponseRequested(ResponseOverrides(out_of_band=True), (own,), None))
    assert [m.content for m in d.one(a.StartGeneration).messages] == ["only this"]


# -- items


def test_items_keep_their_places():
    d = Drive(MANUAL)

    def make(item_id, after=None):
        content = (TextContent(item_id),)
        item = Message(item_id, Role.USER, ItemStatus.COMPLETED, content)
        d.feed(e.ItemCreated(item, after))
        return d.last(a.AnnounceItemAdded).previous_item_id

    assert make("a") is None
    assert make("b") == "a"
    assert make("r", "root") is None
    assert make("m", "a") == "a"
    d.respond()
    assert [m.content for m in d.one(a.StartGeneration).messages] == ["r", "a", "m", "b"]


def test_item_without_an_id_gets_one_and_in_progress_becomes_completed():
    d = Drive(MANUAL)
    d.feed(e.ItemCreated(Message("", Role.USER, ItemStatus.IN_PROGRESS, (TextContent("x"),))))
    item = d.one(a.AnnounceItemDone).item
    assert item.id.startswith("item_")
    assert item.status is ItemStatus.COMPLETED


def test_item_errors_carry_the_exact_codes():
    d = Drive(MANUAL)
    d.typed("a", "dup")
    cases = [
        (e.ItemCreated(Message("dup", Role.USER, ItemStatus.COMPLETED, ()), None, "1"),
         "item_create_duplicate_item_id",
         "Error adding item: an item with the ID 'dup' already exists."),
        (e.ItemCreated(Message("n", Role.USER, ItemStatus.COMPLETED, ()), "nope", "2"),
         "item_create_invalid_previous_item_id", None),
        (e.ItemCreated(FunctionCallOutput("o", "call_none", "x"), None, "3"),
         "invalid_tool_call_id", None),
        (e.ItemRetrieved("x", "4"), "item_retrieve_invalid_item_id",
         "Error retrieving item: the item with id 'x' does not exist."),
        (e.ItemDeleted("x", "5"), "item_delete_invalid_item_id",
         "Error deleting item: the item with id 'x' does not exist."),
        (e.ItemTruncated("x", 0, 5, "6"), "item_truncate_invalid_item_id",
         "Error truncating item: the item with id 'x' does not exist."),
        (e.ItemTruncated("x", 0, -1, "7"), "integer_below_min_value", None),
        (e.ItemTruncated("dup", 0, 5, "8"), "unsupported_content_type",
         "Only model output audio messages can be truncated"),
        (e.OutputCleared("9"), "invalid_event", None),
        (e.PlaybackAcked("r", "i", 0, 1, event_id="10"), "invalid_event", None),
    ]  # fmt: skip
    for number, (event, code, message) in enumerate(cases, 1):
        d.mark()
        d.feed(event)
        found = d.one(a.AnnounceError)
        assert (found.code, found.event_id) == (code, str(number))
        assert message is None or found.message == message
        assert d.kinds() == ["AnnounceError"]


def test_deleting_the_item_that_is_being_spoken_stops_its_response_first():
    d = Drive(MANUAL)
    rid = d.answering(4)
    item_id = d.one(a.AnnounceOutputItemAdded).item.id
    d.mark()
    d.feed(e.ItemDeleted(item_id))
    kinds = d.kinds()
    assert kinds.index("AnnounceResponseDone") < kinds.index("AnnounceItemDeleted")
    assert d.one(a.AnnounceResponseDone).response.id == rid
    d.feed(e.ItemRetrieved(item_id, "gone"))
    assert error(d)[0] == "item_retrieve_invalid_item_id"


def test_deleting_an_answer_that_still_plays_does_not_keep_the_floor_for_ever():
    d = Drive(MANUAL)
    rid = d.answering(1)
    d.finish(rid)
    d.feed(e.ItemDeleted(d.one(a.AnnounceOutputItemAdded).item.id))
    d.wait(2_000)
    assert d.session.state is TurnState.LISTENING


def test_deleting_a_user_item_releases_the_response_that_waits_for_its_words():
    d = Drive(MANUAL)
    d.speak(320)
    d.feed(e.InputCommitted())
    d.respond()
    d.feed(e.ItemDeleted(d.one(a.AnnounceCommitted).item_id))
    assert d.one(a.CancelWork)
    assert d.one(a.StartGeneration).messages == ()


def test_response_does_not_wait_for_speech_that_is_still_open():
    d = Drive()
    d.speak(320)
    d.hush(160)
    d.typed("typed meanwhile")
    d.respond()
    assert [m.content for m in d.one(a.StartGeneration).messages] == ["typed meanwhile"]
    d.feed(e.InputCleared())
    assert d.session.next_deadline() is not None


def test_retrieve_shows_only_what_was_heard_so_far():
    d = Drive(MANUAL)
    d.answering(4)
    item_id = d.one(a.AnnounceOutputItemAdded).item.id
    d.wait(650)
    d.feed(e.ItemRetrieved(item_id))
    item = d.one(a.AnnounceItemRetrieved).item
    assert item.content == (OutputAudioContent("w0 w1 w2"),)
    assert item.status is ItemStatus.IN_PROGRESS


def test_audio_inside_an_item_is_recognised_and_awaited():
    d = Drive(MANUAL, transcribe=True)
    content = InputAudioContent(0, 16_000, None, appended=False)
    d.feed(
        e.ItemCreated(Message("au", Role.USER, ItemStatus.COMPLETED, (TextContent("see"), content)))
    )
    asked = d.one(a.RecogniseRange)
    assert (asked.item_id, asked.content_index, asked.end_sample) == ("au", 1, 16_000)
    d.respond()
    assert not d.take(a.StartGeneration)
    d.transcribe("this")
    assert d.one(a.StartGeneration).messages[0].content == "see\nthis"
    assert d.one(a.AnnounceTranscript).content_index == 1


def test_audio_item_with_its_transcript_needs_no_recognition():
    d = Drive(MANUAL)
    content = InputAudioContent(0, 16_000, "known", appended=False)
    d.feed(e.ItemCreated(Message("au", Role.USER, ItemStatus.COMPLETED, (content,))))
    assert not d.take(a.RecogniseRange)


def test_oldest_items_leave_at_the_bound_and_it_is_said():
    d = Drive(MANUAL, CoreParams(max_items=3))
    for number in range(5):
        d.typed("x", f"i{number}")
    assert [x.item_id for x in d.take(a.AnnounceItemDeleted)] == ["i0", "i1"]


def test_bound_never_takes_the_item_that_is_being_spoken():
    d = Drive(MANUAL, CoreParams(max_items=2))
    d.answering(2)
    spoken = d.one(a.AnnounceOutputItemAdded).item.id
    for number in range(4):
        d.typed("x", f"i{number}")
    assert spoken not in [x.item_id for x in d.take(a.AnnounceItemDeleted)]


def test_prompt_holds_the_most_recent_items_only():
    d = Drive(MANUAL, CoreParams(prompt_items=2))
    for number in range(4):
        d.typed(f"m{number}")
    d.respond()
    assert [m.content for m in d.one(a.StartGeneration).messages] == ["m2", "m3"]


def test_pictures_and_empty_messages_do_not_enter_a_prompt():
    d = Drive(MANUAL)
    picture = (ImageContent("data:image/png;base64,x"),)
    d.feed(e.ItemCreated(Message("p", Role.USER, ItemStatus.COMPLETED, picture)))
    d.typed("  ")
    d.respond()
    assert d.one(a.StartGeneration).messages == ()


# -- tools


def called(d: Drive, rid: str, index: int = 0, complete: bool = True) -> str:
    d.feed(e.CallStarted(rid, index, "get_weather"))
    d.feed(e.CallArguments(rid, index, '{"city":'))
    if complete:
        d.feed(e.CallArguments(rid, index, ' "Paris"}'))
        d.feed(e.CallFinished(rid, index))
    return [x for x in d.seen if isinstance(x, a.AnnounceCallDelta)][-1].call_id


def test_tool_call_is_announced_in_order_and_its_output_enters_the_prompt():
    d = Drive(MANUAL)
    rid = d.respond()
    call_id = called(d, rid)
    d.finish(rid)
    assert d.kinds() == [
        "AnnounceResponseCreated",
        "AnnounceRateLimits",
        "AnnounceOutputItemAdded",
        "AnnounceItemAdded",
        "AnnounceCallDelta",
        "AnnounceCallDone",
        "AnnounceOutputItemDone",
        "AnnounceItemDone",
        "AnnounceResponseDone",
    ]
    done = d.one(a.AnnounceCallDone)
    assert (done.name, done.arguments) == ("get_weather", '{"city": "Paris"}')
    assert d.one(a.AnnounceOutputItemAdded).item.arguments == ""
    d.tool_output(call_id, '{"sky": "blue"}')
    d.respond()
    prompt = d.last(a.StartGeneration).messages
    assert [(m.kind, m.name, m.content) for m in prompt] == [
        ("call", "get_weather", '{"city": "Paris"}'),
        ("result", "get_weather", '{"sky": "blue"}'),
    ]


def test_barge_in_leaves_a_finished_call_valid_and_takes_its_late_result():
    d = Drive()
    rid = d.answering(3)
    call_id = called(d, rid)
    unfinished = called(d, rid, 1, complete=False)
    d.speak(320)
    items = {
        x.item.call_id: x.item
        for x in d.take(a.AnnounceOutputItemDone)
        if hasattr(x.item, "call_id")
    }
    assert items[call_id].status is ItemStatus.COMPLETED
    assert items[unfinished].status is ItemStatus.INCOMPLETE
    assert len(d.take(a.AnnounceCallDone)) == 1, "half a call must not be acted on"
    d.tool_output(call_id)
    assert not d.take(a.AnnounceError)
    d.hush(512)
    d.transcribe("and now")
    kinds = [m.kind for m in d.last(a.StartGeneration).messages]
    assert kinds.count("call") == 1
    assert kinds.count("result") == 1


def test_no_result_without_its_call_whatever_was_deleted():
    d = Drive(MANUAL)
    rid = d.respond()
    call_id = called(d, rid)
    d.finish(rid)
    d.tool_output(call_id)
    d.feed(e.ItemDeleted(d.one(a.AnnounceOutputItemAdded).item.id))
    d.respond()
    assert d.last(a.StartGeneration).messages == ()


def test_replayed_call_and_output_are_accepted():
    d = Drive(MANUAL)
    d.feed(e.ItemCreated(FunctionCall("f1", "call_9", "f", "{}", ItemStatus.COMPLETED)))
    d.tool_output("call_9")
    assert not d.take(a.AnnounceError)


def test_repeated_or_unknown_call_indices_do_no_harm():
    d = Drive(MANUAL)
    rid = d.respond()
    called(d, rid)
    d.feed(e.CallStarted(rid, 0, "again"))
    d.feed(e.CallArguments(rid, 0, "late"))
    d.feed(e.CallFinished(rid, 0))
    d.feed(e.CallArguments(rid, 7, "x"))
    d.feed(e.CallFinished(rid, 7))
    assert len(d.take(a.AnnounceCallDone)) == 1


# -- settings


def test_every_update_is_answered_once():
    d = Drive(MANUAL)
    d.feed(e.SettingsChanged(replace(d.settings, instructions="x"), "u1"))
    assert d.kinds() == ["AnnounceSettings"]


def test_voice_is_locked_once_the_conversation_has_sent_audio():
    d = Drive(MANUAL)
    assert not d.session.voice_locked
    d.answering(1)
    assert d.session.voice_locked
