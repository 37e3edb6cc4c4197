"""The asyncio client: drives the flows of `Core` on `httpx.AsyncClient`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from palaver.actions import ToolOutput
from palaver.client.address import NEVER_SENT, Address, options_of, reason_of
from palaver.client.core import Core
from palaver.client.errors import ClientError
from palaver.client.flow import (
    Answer,
    Begin,
    Effect,
    Emit,
    Finish,
    Finished,
    Flow,
    Lost,
    Open,
    Read,
    Response,
    Send,
    Sleep,
    Stream,
)
from palaver.client.functions import FunctionCall
from palaver.client.shape import shaped

P = ParamSpec("P")
T = TypeVar("T")


def _method(
    flow: Callable[Concatenate[Core, P], Flow[T]],
) -> Callable[Concatenate[AsyncPalaver, P], Coroutine[Any, Any, T]]:
    async def method(self: AsyncPalaver, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async with _Exchange(self._client) as exchange:
            return await exchange.drive(flow(self._core, *args, **kwargs))

    return shaped(method, flow, "{}")


def _iterator(
    stream: Callable[Concatenate[Core, P], Stream[T]],
) -> Callable[Concatenate[AsyncPalaver, P], AsyncGenerator[T, None]]:
    async def method(self: AsyncPalaver, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        async with (
            _Exchange(self._client) as exchange,
            aclosing(exchange.iterate(stream(self._core, *args, **kwargs))) as items,
        ):
            async for item in items:
                yield item

    return shaped(method, stream, "AsyncGenerator[{}, None]")


class AsyncPalaver:
    """Palaver's API on asyncio; the methods, arguments and errors are those of `Palaver`, awaited.

    ``base_url`` and ``api_key`` default to ``PALAVER_URL`` (else http://127.0.0.1:8080) and
    ``PALAVER_API_KEY``; ``timeout``: seconds that the API may be silent before a request counts as lost,
    and that a new run waits when the API has no room for it. ``on_wait`` is told why, and for how many
    seconds, each time that a request waits before it is sent again.
    Raises ConfigurationError for a URL or key that cannot be one.
    Functions of client tools are awaited, those that are no coroutines run in threads.
    Close an iterator that you leave early (``contextlib.aclosing``).
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 30.0,
        on_wait: Callable[[ClientError, float], None] | None = None,
    ) -> None:
        address = Address.of(base_url, api_key)
        self._core = Core(address.url, timeout, on_wait=on_wait)
        self._client = httpx.AsyncClient(**address.client_options)

    @property
    def base_url(self) -> str:
        """Where the API is."""
        return self._core.url

    submit = _method(Core.submit)
    run = _method(Core.run)
    wait = _method(Core.wait)
    get = _method(Core.get)
    list = _iterator(Core.list)
    events = _iterator(Core.events)
    cancel = _method(Core.cancel)
    pause = _method(Core.pause)
    resume = _method(Core.resume)
    approve = _method(Core.approve)
    deny = _method(Core.deny)
    answer = _method(Core.answer)
    steer = _method(Core.steer)
    send = _method(Core.send)
    retry = _method(Core.retry)
    delete = _method(Core.delete)
    bulk = _method(Core.bulk)
    create_conversation = _method(Core.create_conversation)
    conversation = _method(Core.conversation)
    messages = _iterator(Core.messages)
    delete_conversation = _method(Core.delete_conversation)
    export = _iterator(Core.export)
    queues = _method(Core.queues)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def _nothing() -> AsyncIterator[bytes]:
    nothing: tuple[bytes, ...] = ()
    for chunk in nothing:
        yield chunk


class _Exchange:
    """Does what one flow asks for; holds the response that it has open and the calls that are under way."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] = _nothing()
        self._calls: dict[asyncio.Task[ToolOutput], FunctionCall] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def drive(self, flow: Flow[T]) -> T:
        answer: Answer = None
        while True:
            try:
                effect = flow.send(answer)
            except StopIteration as stop:
                result: T = stop.value
                return result
            answer = await self._perform(effect)

    async def iterate(self, stream: Stream[T]) -> AsyncGenerator[T, None]:
        answer: Answer = None
        while True:
            try:
                effect = stream.send(answer)
            except StopIteration:
                return
            if isinstance(effect, Emit):
                yield effect.item
                answer = None
            else:
                answer = await self._perform(effect)

    async def _perform(self, effect: Effect) -> Answer:
        try:
            match effect:
                case Send():
                    return await self._send(effect)
                case Open():
                    return await self._open(effect)
                case Read():
                    return await self._read()
                case Sleep():
                    await asyncio.sleep(effect.seconds)
                    return None
                case Begin():
                    self._calls[asyncio.create_task(effect.call.on_the_loop())] = effect.call
                    return None
                case Finish():
                    return await self._finish()
        except httpx.RequestError as error:
            return Lost(reason_of(error), sent=not isinstance(error, NEVER_SENT))

    async def _send(self, effect: Send) -> Response:
        ask = effect.request
        response = await self._client.request(
            ask.method,
            ask.path,
            params=ask.query,
            headers=ask.headers,
            **options_of(ask.body, effect.timeout),
        )
        return Response(response.status_code, dict(response.headers), response.content)

    async def _open(self, effect: Open) -> Response:
        await self._close()
        ask = effect.request
        options: dict[str, Any] = options_of(ask.body, effect.silence, connect=effect.timeout)
        request = self._client.build_request(ask.method, ask.path, params=ask.query, headers=ask.headers, **options)
        response = self._response = await self._client.send(request, stream=True)
        body = b"" if response.status_code == 200 else await response.aread()
        self._chunks = response.aiter_bytes() if response.status_code == 200 else _nothing()
        return Response(response.status_code, dict(response.headers), body)

    async def _read(self) -> bytes:
        async for chunk in self._chunks:
            if chunk:
                return chunk
        return b""

    async def _finish(self) -> Finished:
        done, _ = await asyncio.wait(self._calls, return_when=asyncio.FIRST_COMPLETED)
        task = done.pop()
        return self._calls.pop(task), task.result()

    async def _close(self) -> None:
        if self._response is not None:
            await self._response.aclose()
            self._response = None
