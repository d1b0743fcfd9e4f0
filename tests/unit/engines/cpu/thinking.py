"""Runs thinker jobs for the tests."""

from dataclasses import dataclass, field
from typing import Any

from engines.base import JobKey, StepRequest, StepResult, ThinkJob, TokenOutput
from engines.cpu.thinker import ThinkerEngine
from session_server.types.prompt import PromptMessage


@dataclass
class Said:
    """What a job gave."""

    text: str = ""
    steps: int = 0
    error: str | None = None
    last: TokenOutput = field(default_factory=lambda: TokenOutput(None))


def job(text: str, instructions: str = "", **fields: object) -> ThinkJob:
    return ThinkJob(instructions, (PromptMessage("user", text),), **fields)  # type: ignore[arg-type]


def running(engine: ThinkerEngine, key: JobKey) -> Any:
    """A job under way, to be looked into or broken."""
    return engine._jobs[key]


def model_of(engine: ThinkerEngine) -> Any:
    """What an engine has loaded: its model, its tokenizer."""
    assert engine._loaded is not None
    return engine._loaded


def run(engine: ThinkerEngine, key: JobKey, work: ThinkJob, units: int = 64) -> Said:
    """One job from start to release."""
    engine.start(key, work)
    said = Said()
    while said.steps < 2000:
        (result,) = engine.step([StepRequest(key, units)])
        said.steps += 1
        take(said, result)
        if result.finished:
            break
    engine.release(key)
    engine.table.check()
    return said


def take(said: Said, result: StepResult) -> None:
    said.error = result.error
    if isinstance(result.output, TokenOutput):
        said.text += result.output.text or ""
        said.last = result.output
