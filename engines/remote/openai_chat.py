"""`remote.openai_chat`: a thinker that runs behind an OpenAI-compatible server (vLLM, SGLang, llama.cpp, a hosted one).

One streamed chat completion per answer. An abort closes the connection, which is how such servers are told to stop. Nobody
can hold a remote answer: past what the runtime reads, we stop reading the connection, and the server runs on as far as
buffers on the way allow. The API key is sent and never logged; what the server says about it is not passed on.

A server that is gone fails answers, one by one, and never the engine: the next answer tries anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import aiohttp

from engines.base import ELSEWHERE, Capabilities, JobKey, Stage, ThinkJob, TokenOutput
from engines.model_store.store import ModelStore
from engines.remote.chat_request import Body, request_body
from engines.remote.chat_response import ChatReply, EventReader, EventTooLong, ServerSays
from engines.remote.model_server import choose_model, error_text, failure_of, refusal
from engines.remote.options import RemoteOptions, read_options, redacted
from engines.streaming import AnswerFailed, Pace, ReadStream
from session_server.types.errors import ConfigError, EngineFault

_log = logging.getLogger(__name__)

MOST_UNREAD = 64
"""Outputs of an answer that wait here before the connection is no longer read."""
_USAGE_WAIT_S = 1.0
"""How long counts may follow the end of an answer."""


@dataclass(slots=True)
class _Answer:
    """One answer under way. `opened`: the server has begun to answer."""

    stream: _Stream
    task: asyncio.Task[None]
    opened: bool = False


class _Stream(ReadStream):
    """Lets its producer wait until there is room again."""

    def __init__(self, over: Callable[[], None]) -> None:
        super().__init__(over)
        self._room = asyncio.Event()

    async def __anext__(self) -> TokenOutput:
        output = await super().__anext__()
        self._room.set()
        return output

    async def room(self) -> None:
        """Returns when there is room for another output."""
        while self.unread >= MOST_UNREAD:
            self._room.clear()
            await self._room.wait()


class RemoteThinker:
    """StreamingEngine for Stage.THINKER."""

    def __init__(self, options: RemoteOptions) -> None:
        self._options = options
        self._model = options.model
        self._http: aiohttp.ClientSession | None = None
        self._key: str | None = None
        self._answers: dict[JobKey, _Answer] = {}
        self._warming: dict[JobKey, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._prompt = self._cached = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            Stage.THINKER,
            max_batch=self._options.answers,
            context_tokens=self._options.context_tokens,
            runs_on=ELSEWHERE,
            warms=self._options.warm,
        )

    async def load(self) -> None:
        if self._http is not None:
            return
        try:
            self._key = self._options.api_key()
        except ValueError as error:
            raise ConfigError(f"remote.openai_chat: {error}") from None
        headers = {"Authorization": f"Bearer {self._key}"} if self._key is not None else {}
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._options.answers),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._options.connect_s),
            headers=headers,
        )
        try:
            if self._options.check or self._model is None:
                self._model = await choose_model(self._http, self._options, self._key)
        except BaseException:
            await self.close()
            raise

    def generate(self, key: JobKey, job: ThinkJob, pace: Pace) -> AsyncIterator[TokenOutput]:
        if key in self._answers:
            raise ValueError(f"job {key} was started before")
        stream = _Stream(lambda: self.abort(key))
        if self._http is None or self._model is None:
            stream.fail(EngineFault("remote.openai_chat is not loaded"))
            return stream
        body = request_body(job, self._options, self._model, pace.urgency_ns)
        task = asyncio.get_running_loop().create_task(self._answer(key, self._http, body, stream))
        self._answers[key] = _Answer(stream, task)
        return stream

    def set_pace(self, key: JobKey, pace: Pace) -> None:
        """The server cannot be paced: nobody reads further, and at some point neither do we."""

    def abort(self, key: JobKey) -> None:
        answer = self._answers.pop(key, None)
        if answer is not None:
            answer.stream.abort()
            self._end(answer.task)
        warming = self._warming.pop(key, None)
        if warming is not None:
            self._end(warming)

    async def warm(self, key: JobKey, job: ThinkJob) -> None:
        if not self._options.warm or self._http is None or self._model is None:
            return
        body = request_body(job, self._options, self._model, (1 << 62) - 1)
        task = asyncio.get_running_loop().create_task(self._read_ahead(self._http, body))
        self._warming[key] = task
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(task)
        finally:
            self._warming.pop(key, None)
            self._end(task)

    def forget(self, session: str) -> None:
        """Nothing is kept between answers."""

    def figures(self) -> Mapping[str, float]:
        if self._http is None:
            raise EngineFault("remote.openai_chat is not loaded")
        under_way = [answer for answer in self._answers.values() if not answer.task.done()]
        running = sum(answer.opened for answer in under_way)
        return {
            "running": running,
            "waiting": len(under_way) - running,
            "held": 0,
            "prompt_tokens": self._prompt,
            "cached_tokens": self._cached,
        }

    async def close(self) -> None:
        for key in [*self._answers, *self._warming]:
            self.abort(key)
        if self._ending:
            await asyncio.wait(self._ending)
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    # -- one answer

    def _end(self, task: asyncio.Task[None]) -> None:
        if not task.done():
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _answer(
        self, key: JobKey, http: aiohttp.ClientSession, body: Body, stream: _Stream
    ) -> None:
        try:
            await self._converse(key, http, body, stream)
        except AnswerFailed as error:
            _log.warning("an answer failed: %s", error)
            stream.fail(error)
        except ServerSays as error:
            reason = f"{error}: {error_text(error.body, self._key)}"
            _log.warning("an answer failed: %s", reason)
            stream.fail(AnswerFailed(reason))
        except Exception as error:  # whatever the network brings fails this answer only
            reason = failure_of(error)
            _log.warning("an answer failed: %s", redacted(f"{reason} ({error!r})", self._key))
            stream.fail(AnswerFailed(reason))

    async def _converse(
        self, key: JobKey, http: aiohttp.ClientSession, body: Body, stream: _Stream
    ) -> None:
        response = await self._open(http, body)
        try:
            if (answer := self._answers.get(key)) is not None:
                answer.opened = True
            reply = ChatReply()
            async with contextlib.aclosing(self._events(response, reply)) as events:
                async for data in events:
                    output = reply.take(data)
                    if output is not None:
                        await stream.room()
                        stream.put(output)
            last = reply.end()
            self._prompt += last.prompt_tokens
            self._cached += last.cached_tokens
            stream.put(last)
        finally:
            response.close()

    async def _open(self, http: aiohttp.ClientSession, body: Body) -> aiohttp.ClientResponse:
        """Post, and wait for the answer's head. A connection that the server closed while it was idle is tried again."""
        async with asyncio.timeout(self._options.first_token_s):
            try:
                response = await http.post(self._url, json=body, allow_redirects=False)
            except (aiohttp.ServerDisconnectedError, ConnectionResetError):
                response = await http.post(self._url, json=body, allow_redirects=False)
            if response.status == 200:
                return response
            try:
                raise await refusal(response, self._key)
            finally:
                response.close()

    async def _events(
        self, response: aiohttp.ClientResponse, reply: ChatReply
    ) -> AsyncGenerator[str, None]:
        """The data of each event, until the server says that it is done."""
        reader, now = EventReader(), asyncio.get_running_loop().time
        until, outputs = now() + self._options.first_token_s, 0
        try:
            while piece := await self._piece(response, until, reply):
                for data in reader.push(piece):
                    if data.strip() == "[DONE]":
                        return
                    yield data
                    if reply.outputs > outputs:  # words count; keep-alives and empty events do not
                        until, outputs = now() + self._options.gap_s, reply.outputs
                if reply.finished and (reply.counted or not self._options.stream_usage):
                    return
            for data in reader.finish():
                if data.strip() != "[DONE]":
                    yield data
        except EventTooLong:
            raise AnswerFailed("the model server sent too long an event") from None

    async def _piece(
        self, response: aiohttp.ClientResponse, until: float, reply: ChatReply
    ) -> bytes:
        """The next bytes; none when the stream is over, or only counts are missing and do not come."""
        if reply.finished:
            try:
                async with asyncio.timeout(_USAGE_WAIT_S):
                    return await response.content.readany()
            except (TimeoutError, aiohttp.ClientError):
                return b""
        async with asyncio.timeout_at(until):
            # bytes that are there do not wait: a flood outruns neither this nor others
            await asyncio.sleep(0)
            return await response.content.readany()

    async def _read_ahead(self, http: aiohttp.ClientSession, body: Body) -> None:
        response = await self._open(http, body)
        async with asyncio.timeout(self._options.first_token_s):
            try:
                while await response.content.readany():
                    pass
            finally:
                response.close()

    @property
    def _url(self) -> str:
        return f"{self._options.base_url}/chat/completions"


def create(options: Mapping[str, object], store: ModelStore) -> RemoteThinker:
    """Options: see `RemoteOptions`. Raises ValueError, naming the option."""
    return RemoteThinker(read_options(options))


def missing(options: Mapping[str, object], store: ModelStore) -> list[str]:
    """What `session-server check` asks; whether the server answers is seen when the engine is loaded."""
    try:
        read_options(options).api_key()
    except ValueError as error:
        return [f"option {error}"]
    return []
