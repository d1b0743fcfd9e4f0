"""What announced responses wait for before they are generated: words and pictures of their context, and the camera.

Invariants: each wait ends, since every open work has a deadline; a picture that arrives while a response waits is waited for,
too, but for no longer than one may take in all; the camera holds up an answer for `camera_wait_ms` at most.
"""

from __future__ import annotations

from collections.abc import Iterable

from session_server.core.camera import Camera
from session_server.core.context import Context
from session_server.core.deadlines import Timer
from session_server.core.response import Response
from session_server.core.works import WorkKind, Works


class WaitingAnswers:
    """Of one session."""

    def __init__(self, context: Context, works: Works, camera: Camera) -> None:
        self._context = context
        self._works = works
        self._camera = camera

    def must_wait(self, response: Response) -> bool:
        """Whether something of its context is not known yet, when it begins."""
        context = self._context
        response.waiting_for = self._missing(response, *self._kinds())
        response.pictures_until_ns = context.in_ms(context.params.looking_ms)
        if response.plan.input_items is None and self._camera.must_wait(response.heard_until):
            response.awaits_camera = True
            due = context.in_ms(context.params.camera_wait_ms)
            context.timers.set(Timer.CAMERA, due, response.id)
        return not self._is_ready(response)

    def know(self, item_id: str, live: Iterable[Response]) -> list[Response]:
        """Those that waited for what has come of this item, or will not come any more."""
        if item_id in self._works.pending(*self._kinds()):
            return []
        those = [response for response in live if item_id in response.waiting_for]
        for response in those:
            response.waiting_for.discard(item_id)
        return those

    def is_ready(self, response: Response) -> bool:
        """Whether it may begin, now that something came."""
        if not response.waiting_for and self._context.now < response.pictures_until_ns:
            response.waiting_for = self._missing(response, WorkKind.PICTURE)
        return self._is_ready(response)

    def look_again(self, live: Iterable[Response]) -> list[Response]:
        """The camera's evidence has changed: those that waited for that and need not any more."""
        those = [r for r in live if r.awaits_camera and not self._camera.must_wait(r.heard_until)]
        for response in those:
            self.give_up_camera(response)
        return those

    def give_up_camera(self, response: Response) -> None:
        """It has waited long enough, or has what it waited for."""
        response.awaits_camera = False
        self._context.timers.clear(Timer.CAMERA, response.id)

    def _missing(self, response: Response, *kinds: WorkKind) -> set[str]:
        """Speech that goes on is no item yet, and missing from no prompt."""
        wanted = response.plan.input_items
        ids = None if wanted is None else {item.id for item in wanted}
        conversation = self._context.conversation
        return {
            item_id
            for item_id in self._works.pending(*kinds)
            if (item_id in conversation if ids is None else item_id in ids)
        }

    def _kinds(self) -> tuple[WorkKind, ...]:
        if self._context.settings.hearing.natively:
            return (WorkKind.PICTURE,)
        return (WorkKind.PICTURE, WorkKind.TRANSCRIPT)

    @staticmethod
    def _is_ready(response: Response) -> bool:
        return not response.waiting_for and not response.awaits_camera
