"""Loans of tokens follow the grant, and never exceed it."""

import asyncio

import pytest

from engines.vllm.pacing_client import LEAST_LOAN, Loans

pytestmark = [pytest.mark.unit, pytest.mark.asyncio]

PROMPT = [5, 6, 7]


async def soon(loans: Loans) -> tuple[list[int], int] | None:
    async with asyncio.timeout(20):
        return await loans.next()


async def test_the_first_loan_brings_the_prompt_and_later_ones_the_last_token() -> None:
    loans = Loans(PROMPT, 40, 8)
    assert await soon(loans) == (PROMPT, 8)
    loans.used(8, 99)
    assert loans.parked
    loans.grant(20)
    assert await soon(loans) == ([99], 12)
    loans.used(20, 98)
    loans.grant(None)
    assert await soon(loans) == ([98], 20)
    loans.used(40, 97)
    assert await soon(loans) is None


async def test_no_loan_before_the_last_one_is_used_up() -> None:
    loans = Loans(PROMPT, 40, 8)
    await soon(loans)
    loans.grant(30)
    waiting = asyncio.ensure_future(loans.next())
    for made in (1, 7):
        loans.used(made, made)
        await asyncio.sleep(0)
        assert not waiting.done()
    loans.used(8, 8)
    async with asyncio.timeout(20):
        assert await waiting == ([8], 22)


async def test_small_rises_of_the_grant_are_saved_up_but_the_last_tokens_are_lent() -> None:
    loans = Loans(PROMPT, 10, 8)
    await soon(loans)
    loans.used(8, 1)
    loans.grant(9)
    waiting = asyncio.ensure_future(loans.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    loans.grant(10)
    async with asyncio.timeout(20):
        assert await waiting == ([1], 2)
    assert LEAST_LOAN > 1


async def test_an_answer_without_a_grant_waits() -> None:
    loans = Loans(PROMPT, 10, 0)
    waiting = asyncio.ensure_future(loans.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    loans.grant(10)
    async with asyncio.timeout(20):
        assert await waiting == (PROMPT, 10)
