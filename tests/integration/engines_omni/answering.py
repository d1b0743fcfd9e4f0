"""Engines of the Omni graph driven by hand, as the host would: tokens to the talker, frames to the vocoder."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from engines.base import (
    AcousticFrames,
    JobKey,
    Pcm,
    SpeechJob,
    StepRequest,
    StepResult,
    TalkJob,
    TalkPiece,
    ThinkJob,
    TokenOutput,
)
from session_server.types.prompt import PromptMessage


@dataclass
class Answer:
    """All that came of one job."""

    key: JobKey
    texts: list[str] = field(default_factory=list)
    payloads: list[object] = field(default_factory=list)
    codes: list[torch.Tensor] = field(default_factory=list)
    pieces: int = 0
    pcm: bytes = b""
    end: TokenOutput | None = None
    ended: set[str] = field(default_factory=set)

    @property
    def frames(self) -> torch.Tensor:
        return torch.cat(self.codes)


def heard(pcm: bytes, *before: PromptMessage, instructions: str = "Be kind.") -> ThinkJob:
    return ThinkJob(instructions, (*before, PromptMessage("user", "", audio=pcm)))


def think(engine, answers: list[Answer], prefill: int = 16) -> None:
    """Until all have ended; those named are stepped together."""
    while left := [a for a in answers if "thinker" not in a.ended]:
        for answer, result in zip(left, step(engine, left, prefill), strict=True):
            output = result.output
            assert isinstance(output, TokenOutput)
            if output.text is not None:
                answer.texts.append(output.text)
                answer.payloads.append(output.payloads)
            if result.finished:
                answer.ended.add("thinker")
                answer.end = output


def begin_talking(engine, answers: list[Answer], voice: str = "ethan") -> None:
    for answer in answers:
        engine.start(answer.key, TalkJob(voice))
        for text, payloads in zip(answer.texts, answer.payloads, strict=True):
            if payloads:
                engine.feed(answer.key, TalkPiece(text, payloads), False)
        engine.feed(answer.key, "", True)


def talk(engine, answers: list[Answer]) -> None:
    while left := [a for a in answers if "talker" not in a.ended]:
        for answer, result in zip(left, step(engine, left, 4), strict=True):
            if isinstance(result.output, AcousticFrames):
                answer.codes.append(result.output.payload.codes)
                answer.pieces += result.output.pieces
                assert result.units == result.output.units == 1
            if result.finished:
                answer.ended.add("talker")


def vocode(engine, answers: list[Answer], chunk: int = 5) -> None:
    from engines.omni.stage_payloads import CodecFrames

    for answer in answers:
        engine.start(answer.key, SpeechJob("ethan"))
        for number, codes in enumerate(answer.codes):
            engine.feed(answer.key, CodecFrames(codes), number == len(answer.codes) - 1)
    while left := [a for a in answers if "vocoder" not in a.ended]:
        for answer, result in zip(left, step(engine, left, chunk), strict=True):
            if isinstance(result.output, Pcm):
                answer.pcm += result.output.pcm
            if result.finished:
                answer.ended.add("vocoder")


def step(engine, answers: list[Answer], units: int) -> list[StepResult]:
    results = engine.step([StepRequest(answer.key, units) for answer in answers])
    assert [result.key for result in results] == [answer.key for answer in answers]
    assert all(result.error is None for result in results), results
    return results
