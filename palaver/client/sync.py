"""The blocking client: drives the flows of `Core` on `httpx.Client`."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

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


def _method(flow: Callable[Concatenate[Core, P], Flow[T]]) -> Callable[Concatenate[Palaver, P], T]:
    def method(self: Palaver, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with _Exchange(self._client) as exchange:
            return exchange.drive(flow(self._core, *args, **kwargs))

    return shaped(method, flow, "{}")


def _iterator(
    stream: Callable[Concatenate[Core, P], Stream[T]],
) -> Callable[Concatenate[Palaver, P], Generator[T, None, None]]:
    def method(self: Palaver, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        with _Exchange(self._client) as exchange:
            yield from exchange.iterate(stream(self._core, *args, **kwargs))

    return shaped(method, stream, "Generator[{}, None, None]")


class Palaver:
    """Palaver's API, blocking. Threads may share one. Functions of client tools are called in threads.

    ``base_url`` and ``api_key`` default to ``PALAVER_URL`` (else http://127.0.0.1:8080) and
    ``PALAVER_API_KEY``; ``timeout``: seconds that the API may be silent before a request counts as lost,
    and that a new run waits when the API has no room for it. ``on_wait`` is told why, and for how many
    seconds, each time that a request waits before it is sent again.
    Raises ConfigurationError for a URL or key that cannot be one.
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
        self._client = httpx.Client(**address.client_options)

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

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Exchange:
    """Does what one flow asks for; holds the response that it has open and the calls that are under way."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._response: httpx.Response | None = None
        self._chunks: Iterator[bytes] = iter(())
        self._finished: queue.SimpleQueue[Finished] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def drive(self, flow: Flow[T]) -> T:
        answer: Answer = None
        while True:
            try:
                effect = flow.send(answer)
            except StopIteration as stop:
                result: T = stop.value
                return result
            answer = self._perform(effect)

    def iterate(self, stream: Stream[T]) -> Iterator[T]:
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
                answer = self._perform(effect)

    def _perform(self, effect: Effect) -> Answer:
        try:
            match effect:
                case Send():
                    return self._send(effect)
                case Open():
                    return self._open(effect)
                case Read():
                    return next((chunk for chunk in self._chunks if chunk), b"")
                case Sleep():
                    time.sleep(effect.seconds)
                    return None
                case Begin():
                    self._begin(effect.call)
                    return None
                case Finish():
                    return self._finished.get()
        except httpx.RequestError as error:
            return Lost(reason_of(error), sent=not isinstance(error, NEVER_SENT))

    def _send(self, effect: Send) -> Response:
        ask = effect.request
        response = self._client.request(
            ask.method,
            ask.path,
            params=ask.query,
            headers=ask.headers,
            **options_of(ask.body, effect.timeout),
        )
        return Response(response.status_code, dict(response.headers), response.content)

    def _open(self, effect: Open) -> Response:
        self._close()
        ask = effect.request
        options: dict[str, Any] = options_of(ask.body, effect.silence, connect=effect.timeout)
        request = self._client.build_request(ask.method, ask.path, params=ask.query, headers=ask.headers, **options)
        response = self._response = self._client.send(request, stream=True)
        body = b"" if response.status_code == 200 else response.read()
        self._chunks = response.iter_bytes() if response.status_code == 200 else iter(())
        return Response(response.status_code, dict(response.headers), body)

    def _begin(self, call: FunctionCall) -> None:
        """Call a function in a thread of its own, one that does not keep the process from ending."""
        context = contextvars.copy_context()

        def do() -> None:
            self._finished.put((call, context.run(call.here)))

        threading.Thread(target=do, name=call.function.name, daemon=True).start()

    def _close(self) -> None:
        if self._response is not None:
            self._response.close()
            self._response = None
