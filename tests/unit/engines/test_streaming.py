"""An answer's outputs arrive in order, bounded, and not at all after an abort."""

import asyncio

import pytest

from engines.base import TokenOutput
from engines.streaming import UNREAD, AnswerFailed, AnswerStream, ReadStream

pytestmark = [pytest.mark.unit, pytest.mark.asyncio]


def _token(number: int, reason: str | None = None) -> TokenOutput:
    return TokenOutput(f" {number}", reason, 5, 2, number)


def _stream() -> tuple[AnswerStream, list[str]]:
    told: list[str] = []
    return AnswerStream(lambda: told.append("left")), told


async def test_outputs_come_in_order_and_end_with_the_reason() -> None:
    stream, told = _stream()
    for number in (1, 2):
        stream.put(_token(number))
    stream.put(_token(3, "stop"))
    stream.put(_token(4))
    assert [output.output_tokens async for output in stream] == [1, 2, 3]
    await stream.aclose()
    assert not told, "an answer that was read to its end was not left"


async def test_nothing_is_read_after_an_abort_not_even_what_was_ready() -> None:
    stream, told = _stream()
    stream.put(_token(1))
    stream.abort()
    stream.put(_token(2))
    stream.fail(AnswerFailed("too late"))
    assert [output async for output in stream] == []
    assert not told


async def test_a_failure_follows_what_was_made_before_it() -> None:
    stream, _ = _stream()
    stream.put(_token(1))
    stream.fail(AnswerFailed("no more memory"))
    assert (await anext(stream)).output_tokens == 1
    with pytest.raises(AnswerFailed, match="no more memory"):
        await anext(stream)
    assert [output async for output in stream] == []


async def test_a_reader_that_sleeps_does_not_make_the_buffer_grow() -> None:
    stream, _ = _stream()
    for number in range(1, 3 * UNREAD):
        stream.put(_token(number))
        assert stream.unread <= UNREAD
    stream.put(_token(3 * UNREAD, "stop"))
    outputs = [output async for output in stream]
    text = "".join(output.text or "" for output in outputs)
    assert text.split() == [str(n) for n in range(1, 3 * UNREAD + 1)], "nothing is lost"
    assert outputs[-1].reason == "stop"
    assert outputs[-1].output_tokens == 3 * UNREAD


@pytest.mark.parametrize("by", ["aclose", "cancel"])
async def test_a_reader_that_leaves_is_an_abort(by: str) -> None:
    stream, told = _stream()
    stream.put(_token(1))
    assert (await anext(stream)).output_tokens == 1
    if by == "aclose":
        await stream.aclose()
        await stream.aclose()
    else:
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert told == ["left"]
    stream.put(_token(2))
    assert [output async for output in stream] == []


async def test_a_waiting_reader_wakes_for_an_output_and_for_an_abort() -> None:
    stream, _ = _stream()
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    stream.put(_token(1))
    assert (await waiting).output_tokens == 1
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    stream.abort()
    with pytest.raises(StopAsyncIteration):
        await waiting


async def test_what_is_joined_keeps_that_there_is_no_text_yet() -> None:
    stream, _ = _stream()
    for _ in range(UNREAD + 3):
        stream.put(TokenOutput(None))
    first = await anext(stream)
    assert first.text is None


async def test_an_engine_forgets_an_answer_whose_reader_stops_at_its_last_output() -> None:
    told: list[str] = []
    stream = ReadStream(lambda: told.append("over"))
    stream.put(_token(1))
    stream.put(_token(2, "stop"))
    assert (await anext(stream)).reason is None
    assert not told, "until then an abort has to find it"
    assert (await anext(stream)).reason == "stop"
    assert told
