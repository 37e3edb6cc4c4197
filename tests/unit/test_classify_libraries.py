"""Every exception class that httpx, redis and aiohttp export is judged by name, and real faults too."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType

import aiohttp
import httpx
import pytest
import redis.exceptions
import redis.sentinel

from palaver.errors import classify
from palaver.errors.foreign import FINDINGS
from workers.connections.transport import AiohttpTransport

AWAY = "storage"
OURS = "internal"

HTTPX = {
    "CloseError": "connection",
    "ConnectError": "connection",
    "ConnectTimeout": "timeout",
    "CookieConflict": OURS,
    "DecodingError": "provider_error",
    "HTTPError": "connection",
    "HTTPStatusError": "provider_error",
    "InvalidURL": "invalid_request",
    "LocalProtocolError": OURS,
    "NetworkError": "connection",
    "PoolTimeout": "timeout",
    "ProtocolError": "connection",
    "ProxyError": "connection",
    "ReadError": "connection",
    "ReadTimeout": "timeout",
    "RemoteProtocolError": "connection",
    "RequestError": "connection",
    "RequestNotRead": OURS,
    "ResponseNotRead": OURS,
    "StreamClosed": OURS,
    "StreamConsumed": OURS,
    "StreamError": OURS,
    "TimeoutException": "timeout",
    "TooManyRedirects": "invalid_request",
    "TransportError": "connection",
    "UnsupportedProtocol": "invalid_request",
    "WriteError": "connection",
    "WriteTimeout": "timeout",
}
REDIS = {
    "AskError": AWAY,
    "AuthenticationError": AWAY,
    "AuthenticationWrongNumberOfArgsError": AWAY,
    "AuthorizationError": AWAY,
    "BusyLoadingError": AWAY,
    "ChildDeadlockedError": OURS,
    "ClusterCrossSlotError": OURS,
    "ClusterDownError": AWAY,
    "ClusterError": AWAY,
    "ConnectionError": AWAY,
    "CrossSlotTransactionError": OURS,
    "DataError": OURS,
    "ExecAbortError": AWAY,
    "ExternalAuthProviderError": AWAY,
    "IncorrectPolicyType": OURS,
    "InvalidPipelineStack": OURS,
    "InvalidResponse": AWAY,
    "LockError": OURS,
    "LockNotOwnedError": OURS,
    "MasterDownError": AWAY,
    "MasterNotFoundError": AWAY,
    "MaxConnectionsError": AWAY,
    "ModuleError": OURS,
    "MovedError": AWAY,
    "NoPermissionError": AWAY,
    "NoScriptError": AWAY,
    "NoSuchFieldsetError": OURS,
    "OutOfMemoryError": AWAY,
    "PubSubError": OURS,
    "ReadOnlyError": AWAY,
    "RedisClusterException": AWAY,
    "RedisError": AWAY,
    "ResponseError": OURS,
    "SlaveNotFoundError": AWAY,
    "SlotNotCoveredError": AWAY,
    "TimeoutError": AWAY,
    "TryAgainError": AWAY,
    "WatchError": AWAY,
}
AIOHTTP = {
    "BadContentDispositionHeader": OURS,
    "BadContentDispositionParam": OURS,
    "ClientConnectionError": "connection",
    "ClientConnectionResetError": "connection",
    "ClientConnectorCertificateError": "connection",
    "ClientConnectorDNSError": "connection",
    "ClientConnectorError": "connection",
    "ClientConnectorSSLError": "connection",
    "ClientError": "connection",
    "ClientHttpProxyError": "connection",
    "ClientOSError": "connection",
    "ClientPayloadError": "connection",
    "ClientProxyConnectionError": "connection",
    "ClientResponseError": "provider_error",
    "ClientSSLError": "connection",
    "ConnectionTimeoutError": "timeout",
    "ContentTypeError": "provider_error",
    "EofStream": "connection",
    "InvalidURL": "invalid_request",
    "InvalidUrlClientError": "invalid_request",
    "InvalidUrlRedirectClientError": "invalid_request",
    "NonHttpUrlClientError": "invalid_request",
    "NonHttpUrlRedirectClientError": "invalid_request",
    "RedirectClientError": "invalid_request",
    "ServerConnectionError": "connection",
    "ServerDisconnectedError": "connection",
    "ServerFingerprintMismatch": "connection",
    "ServerTimeoutError": "timeout",
    "SocketTimeoutError": "timeout",
    "TooManyRedirects": "invalid_request",
    "UploadAbortedError": "connection",
    "WSMessageTypeError": OURS,
    "WSServerHandshakeError": "provider_error",
    "WebSocketError": "connection",
}


def exported(module: ModuleType, names: list[str]) -> Iterator[tuple[str, type[Exception]]]:
    for name in names:
        thing = getattr(module, name)
        if inspect.isclass(thing) and issubclass(thing, Exception):
            yield name, thing


LIBRARIES = [
    *(("httpx", *pair, HTTPX) for pair in exported(httpx, httpx.__all__)),
    *(("redis", *pair, REDIS) for pair in exported(redis.exceptions, dir(redis.exceptions))),
    *(("redis", *pair, REDIS) for pair in exported(redis, redis.__all__)),
    *(("redis", *pair, REDIS) for pair in exported(redis.sentinel, dir(redis.sentinel))),
    *(("aiohttp", *pair, AIOHTTP) for pair in exported(aiohttp, list(aiohttp.__all__))),
]


def bare(kind: type[Exception], text: str = "") -> Exception:
    """An instance without the circumstances its constructor asks for."""
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    return error


@pytest.mark.parametrize(("library", "name", "kind", "table"), LIBRARIES, ids=lambda value: str(value)[:40])
def test_every_exported_exception_is_judged(
    library: str, name: str, kind: type[Exception], table: dict[str, str]
) -> None:
    if kind.__module__.partition(".")[0] != library:
        return  # such as redis.sentinel, which re-exports what it uses
    name = kind.__name__  # an alias is judged by its own name
    if name not in table or name not in FINDINGS[library]:
        pytest.fail(f"judge it: {library}.{name} is in no table; say what it means for a run")
    assert classify(bare(kind)).error_class == table[name]


def test_the_tables_name_nothing_that_is_gone() -> None:
    known = {(library, kind.__name__) for library, _, kind, _ in LIBRARIES}
    tabled = [("httpx", HTTPX), ("redis", REDIS), ("aiohttp", AIOHTTP)]
    assert {(library, name) for library, table in tabled for name in table} <= known


@asynccontextmanager
async def server(answer: bytes | None) -> AsyncIterator[str]:
    """Serves ``answer`` to every connection and closes it; None refuses connections."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(answer or b"")
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    if answer is None:
        listener.close()
        await listener.wait_closed()
    try:
        yield address
    finally:
        listener.close()


@asynccontextmanager
async def on_aiohttp() -> AsyncIterator[httpx.AsyncClient]:
    """A client of httpx on the transport of model calls."""
    async with aiohttp.ClientSession() as session, httpx.AsyncClient(transport=AiohttpTransport(session)) as client:
        yield client


@pytest.mark.parametrize("client", [httpx.AsyncClient, on_aiohttp])
@pytest.mark.parametrize(
    ("scheme", "answer", "codes"),
    [
        ("http", None, {"connect_refused"}),
        ("http", b"", {"server_disconnected"}),
        ("http", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", {"stream_truncated"}),
        ("http", b"no HTTP at all\r\n\r\n", {"protocol_error"}),
        ("https", b"no TLS at all", {"tls"}),
    ],
)
async def test_a_real_fault_has_its_code(
    client: Callable[[], AbstractAsyncContextManager[httpx.AsyncClient]],
    scheme: str,
    answer: bytes | None,
    codes: set[str],
) -> None:
    async with server(answer) as address, client() as caller:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is the question
            await caller.get(f"{scheme}://{address}/")
    failure = classify(caught.value, source="model", provider="p")
    assert (failure.error_class, failure.retryable) == ("connection", True)
    assert failure.code in codes, caught.value
