"""HTTP answers that are not successes, and CORS: one shape for all, that of OpenAI's API.

Every error body is `{"error": {"type", "code", "message", "param"}}`. A fault of ours answers 500
without details and logs them without headers, since those hold keys. Requests that never reach a
handler (no HTTP, or a body that is not what its headers say) are answered by the HTTP library
itself, in plain text; here those answers get the same shape. The connection ends with such an
answer, as it does in the library.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.http_exceptions import PayloadEncodingError

from session_server.http.host_port import HostSilent
from session_server.protocol.error_codes import error_body
from session_server.session.registry import NotAdmitted
from session_server.types.errors import ClientFault

_log = logging.getLogger(__name__)

HttpHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_STATUS_OF_CODE = {"invalid_api_key": 401}


def failure(
    status: int,
    code: str,
    message: str,
    *,
    param: str | None = None,
    headers: dict[str, str] | None = None,
) -> web.Response:
    """An error response. Statuses from 500 on are `server_error`s, the others the client's."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    fault = ClientFault(code, message, param=param, type=kind)
    return web.Response(
        status=status, body=error_body(fault), content_type="application/json", headers=headers
    )


def not_admitted(refusal: NotAdmitted) -> web.Response:
    """503 with Retry-After; the reason stands in the body."""
    return failure(
        503,
        "inference_rate_limit_exceeded",
        f"No session can be opened now: {refusal.message}.",
        param=refusal.refusal.value,
        headers={"Retry-After": str(refusal.retry_after_s)},
    )


def no_such_call() -> web.Response:
    """404 for a call that is not there, or not any more."""
    return failure(404, "call_not_found", "There is no such call.", param="call_id")


@web.middleware
async def errors_as_json(request: web.Request, handler: HttpHandler) -> web.StreamResponse:
    """Turn whatever a handler raises into an error body."""
    try:
        return await handler(request)
    except ClientFault as fault:
        return web.Response(
            status=_STATUS_OF_CODE.get(fault.code, 400),
            body=error_body(fault),
            content_type="application/json",
        )
    except NotAdmitted as refusal:
        return not_admitted(refusal)
    except HostSilent as silent:
        _log.warning("%s %s: %s", request.method, request.path, silent)
        headers = {"Retry-After": "1"}
        return failure(503, "server_error", "The engine host does not answer.", headers=headers)
    except web.RequestPayloadError:
        return _bad_body(request)
    except web.HTTPException as error:
        return _from_http(request, error)
    except ConnectionError:  # the peer left in the middle of its request: nobody reads this
        _log.debug("%s %s: the peer is gone", request.method, request.path)
        return web.Response()
    except Exception:
        _log.exception("%s %s failed", request.method, request.path)
        return failure(500, "server_error", "The server had an error; the request may be retried.")


def _bad_body(request: web.Request) -> web.Response:
    """400 for a body that is not what its headers say, such as a wrong `Content-Encoding`; the connection ends with it."""
    request.content.feed_eof()  # else aiohttp reads on, and reports the same fault as one of ours
    answer = failure(400, "invalid_body", "The request body cannot be decoded.")
    answer.force_close()
    return answer


def _from_http(request: web.Request, error: web.HTTPException) -> web.Response:
    if error.status == 404:
        text = f"Unknown request URL: {request.method} {request.path}."
        return failure(404, "unknown_url", text)
    if error.status == 405:
        text = f"Not allowed here: {request.method} {request.path}."
        allow = error.headers.get("Allow", "")
        return failure(405, "method_not_allowed", text, headers={"Allow": allow})
    if error.status == 413:
        return failure(413, "request_too_large", "The request body is too large.")
    return failure(error.status, "invalid_request", error.text or error.reason)


def _crosses_origins(request: web.BaseRequest) -> bool:
    return request.path.startswith(("/v1/realtime", "/realtime"))


async def allow_origins(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """CORS headers on every answer of the realtime routes, errors included."""
    if _crosses_origins(request) and response.status != 101:
        response.headers["Access-Control-Allow-Origin"] = "*"
        response.headers["Access-Control-Expose-Headers"] = "Location"


async def preflight(request: web.Request) -> web.Response:
    """OPTIONS of the realtime routes: any header that is asked for is allowed."""
    asked = request.headers.get("Access-Control-Request-Headers", "")
    names = ["Authorization", "Content-Type"]
    known = {name.lower() for name in names}
    names += [
        n for n in (part.strip() for part in asked.split(",")) if n and n.lower() not in known
    ]
    return web.Response(
        status=204,
        headers={
            "Access-Control-Allow-Methods": "GET, POST, DELETE, OPTIONS",
            "Access-Control-Allow-Headers": ", ".join(names),
            "Access-Control-Max-Age": "86400",
        },
    )


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
