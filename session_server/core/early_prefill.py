"""The user's words, asked for while he still speaks, so that the thinker reads them before he has ended.

With `read_along_ms` 0 nothing is asked for: what precedes the turn is read when it begins, and the turn in its pauses. Otherwise the
words so far are asked for after so much speech, and again when the turn has grown by that and by a quarter: the recognitions
of a long turn cost a few times its last one, however long it is. One is open at a time. The last word is left out, since it may
have been cut.
"""

from __future__ import annotations

from session_server.core.context import Context
from session_server.core.host_requests import Works
from session_server.core.interruption import Utterance
from session_server.core.responses import Responses
from session_server.types.audio import INPUT_RATE, ms_to_samples


class ReadingAlong:
    """What is read of a turn that goes on. Only of announced speech that no answer is under."""

    def __init__(self, context: Context, works: Works, responses: Responses) -> None:
        self._context = context
        self._works = works
        self._responses = responses

    def begin(self) -> None:
        """Speech has begun: all of the prompt that is known can be read."""
        if self._is_wanted():
            self._responses.prompting.warm()

    def follow(self, utterance: Utterance, end: int) -> None:
        """The user has been heard up to `end`."""
        every_ms, hearing = self._context.params.read_along_ms, self._context.settings.hearing
        if not every_ms or utterance.probe is not None or hearing.natively or not hearing.words:
            return
        known = max(utterance.start, utterance.probed_to)
        grown = max(ms_to_samples(every_ms, INPUT_RATE), (known - utterance.start) // 4)
        if end - known >= grown and self._is_wanted():
            utterance.probed_to = end
            utterance.probe = self._works.recognise(
                utterance.item_id, utterance.start, end, partial=True
            )

    def read(self, text: str) -> None:
        """The words so far have come."""
        words = text.split()[:-1]
        if words and self._is_wanted():
            self._responses.prompting.warm(" ".join(words))

    def _is_wanted(self) -> bool:
        detection = self._context.settings.turn_detection
        return self._context.params.speculate and detection.create_response
