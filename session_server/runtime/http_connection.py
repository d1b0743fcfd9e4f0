"""Requests that never reach a handler: what is no HTTP, or has a body that is not what its headers say.

The HTTP library answers those itself, in plain text. Here they get the shape of all other errors; the connection ends with it,
as it does there.
"""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import PayloadEncodingError

from session_server.runtime.http_errors import failure

_log = logging.getLogger(__name__)


def errors_in_one_shape(runner: web.AppRunner) -> None:
    """After `setup`, before the first site: connections of this runner answer so."""
    server = runner.server
    assert server is not None
    server.__class__ = _Server  # the library has no seam for this: both classes only add a method


class _Connection(web.RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The client's fault is worth a line at DEBUG; ours, a traceback."""
        if status >= 500 or request.writer.output_size:
            super().handle_error(request, status, exc, message)
            answer = failure(status, "server_error", "The server had an error.")
        elif isinstance(exc, PayloadEncodingError):
            answer = failure(status, "invalid_body", "The request body cannot be decoded.")
        else:
            answer = failure(status, "invalid_request", "The request is not valid HTTP.")
        if status < 500:
            _log.debug("a request that is none: %r", exc)
        answer.force_close()
        return answer


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        connection = super().__call__()
        connection.__class__ = _Connection
        return connection
