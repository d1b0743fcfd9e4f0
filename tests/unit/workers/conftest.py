"""What the tests of the workers' modules share."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


class Sent:
    """A `send` that keeps what was sent."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def __call__(self, message: Any) -> None:
        self.messages.append(message)

    def of(self, kind: type[T]) -> list[T]:
        return [message for message in self.messages if isinstance(message, kind)]
