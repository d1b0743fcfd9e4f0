"""An answer's stream that tells its engine when nobody will read it any more: until then an abort has to find it, even when the
answer is whole and only waits to be read."""

from __future__ import annotations

from collections.abc import Callable

from engines.answer_stream import AnswerStream
from engines.base import TokenOutput


class ReadStream(AnswerStream):
    """`over` is told when the last output was read (nobody need ask for more), when it failed, or when its reader left. It may
    be told twice."""

    def __init__(self, over: Callable[[], None]) -> None:
        super().__init__(over)
        self._over = over

    async def __anext__(self) -> TokenOutput:
        try:
            output = await super().__anext__()
        except Exception:
            self._over()
            raise
        if output.reason is not None:
            self._over()
        return output
