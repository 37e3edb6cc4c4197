"""What a tool raised: its class, and whether its service may have taken the call."""

from __future__ import annotations

import asyncio
import email.message
import http.client
import socket
import ssl
import subprocess
import urllib.error
from collections.abc import Callable
from typing import Any

import aiohttp
import httpx
import pytest
import redis.exceptions

from palaver.errors import ErrorClass, InvalidToolCall, RetryableToolError, ToolError, ToolTimeout
from palaver.errors.finding import ToolFinding
from palaver.errors.vocabulary import TOOL_CLASSES
from palaver.tools import tool
from tests.waiting import PATIENCE
from workers.sources.containment import failed

UNSENT, SENT = False, True


def foreign(module: str, name: str, *bases: type[BaseException], **attributes: Any) -> Any:
    """An exception class of a library that is not installed here."""
    return type(name, bases or (Exception,), {"__module__": module, **attributes})


def caused(error: BaseException, cause: BaseException | None = None, *, amidst: BaseException | None = None) -> Any:
    """As raised from ``cause``, or while ``amidst`` was handled."""
    error.__cause__, error.__context__ = cause, amidst
    return error


REQUEST = httpx.Request("POST", "http://crm/orders")


def answered(status: int, *, history: tuple[httpx.Response, ...] = (), **headers: str) -> httpx.HTTPStatusError:
    response = httpx.Response(status, headers={k.replace("_", "-"): v for k, v in headers.items()}, history=[*history])
    return httpx.HTTPStatusError(str(status), request=REQUEST, response=response)


REQUESTS_ERROR = foreign("requests.exceptions", "RequestException", OSError)
REQUESTS_CONNECTION = foreign("requests.exceptions", "ConnectionError", REQUESTS_ERROR)
REQUESTS_SSL = foreign("requests.exceptions", "SSLError", REQUESTS_CONNECTION)
REQUESTS_PROXY = foreign("requests.exceptions", "ProxyError", REQUESTS_CONNECTION)
URLLIB3_ERROR = foreign("urllib3.exceptions", "HTTPError")
MAX_RETRY = foreign("urllib3.exceptions", "MaxRetryError", URLLIB3_ERROR)
NEW_CONNECTION = foreign("urllib3.exceptions", "NewConnectionError", URLLIB3_ERROR)
PROTOCOL = foreign("urllib3.exceptions", "ProtocolError", URLLIB3_ERROR)
DBAPI = foreign("sqlalchemy.exc", "DBAPIError", connection_invalidated=False)
OPERATIONAL = foreign("sqlalchemy.exc", "OperationalError", DBAPI)
POOL = foreign("sqlalchemy.exc", "TimeoutError")
RPC = foreign("grpc", "RpcError")


def rpc(status: str, details: str = "") -> Any:
    code = type("StatusCode", (), {"name": status})()
    return foreign("grpc._channel", "_InactiveRpcError", RPC, code=lambda _: code, details=lambda _: details)()


def http_error(status: int) -> urllib.error.HTTPError:
    headers = email.message.Message()
    headers["Retry-After"] = "9"
    return urllib.error.HTTPError("http://crm", status, "no", headers, None)


CASES: list[tuple[BaseException, str, bool]] = [
    # httpx
    (caused(httpx.ConnectError("no"), ConnectionRefusedError(111, "no")), "connection", UNSENT),
    (caused(httpx.ConnectError("no"), socket.gaierror(-2, "no")), "connection", UNSENT),
    (caused(httpx.ConnectError("no"), ssl.SSLError(1, "no")), "connection", UNSENT),
    (httpx.ConnectTimeout("no"), "timeout", UNSENT),
    (httpx.PoolTimeout("no"), "timeout", UNSENT),
    (httpx.ProxyError("no"), "connection", UNSENT),
    (httpx.UnsupportedProtocol("no"), "invalid_request", UNSENT),
    (httpx.ReadTimeout("no"), "timeout", SENT),
    (httpx.WriteTimeout("no"), "timeout", SENT),
    (httpx.ReadError("no"), "connection", SENT),
    (caused(httpx.ReadError("no"), ssl.SSLCertVerificationError(1, "no")), "connection", SENT),
    (httpx.RemoteProtocolError("Server disconnected without sending a response."), "connection", SENT),
    (caused(httpx.ConnectError("no"), amidst=httpx.ReadTimeout("first")), "timeout", SENT),
    (answered(503), "provider_error", UNSENT),
    (answered(429), "rate_limited", UNSENT),
    (answered(529), "rate_limited", SENT),
    (answered(500), "provider_error", SENT),
    (answered(502), "provider_error", SENT),
    (answered(401), "authentication", SENT),
    (answered(404), "not_found", SENT),
    (answered(408), "timeout", SENT),
    (answered(409), "invalid_request", SENT),
    (answered(422), "invalid_request", SENT),
    (answered(503, history=(httpx.Response(303),)), "provider_error", SENT),
    (caused(answered(503), amidst=httpx.ReadTimeout("first")), "provider_error", SENT),
    # aiohttp
    (aiohttp.ServerDisconnectedError(), "connection", SENT),
    (aiohttp.ClientConnectionResetError("no"), "connection", SENT),
    (aiohttp.ConnectionTimeoutError(), "timeout", UNSENT),
    (aiohttp.SocketTimeoutError(), "timeout", SENT),
    # requests, over urllib3
    (
        caused(
            REQUESTS_CONNECTION("no"),
            amidst=caused(MAX_RETRY("no"), caused(NEW_CONNECTION("refused"), ConnectionRefusedError(111, "no"))),
        ),
        "connection",
        UNSENT,
    ),
    (
        caused(REQUESTS_CONNECTION("no"), amidst=caused(PROTOCOL("no"), ConnectionResetError(104, "x"))),
        "connection",
        SENT,
    ),
    (caused(REQUESTS_SSL("no"), amidst=ssl.SSLCertVerificationError(1, "no")), "connection", UNSENT),
    (caused(REQUESTS_SSL("no"), amidst=ssl.SSLError(1, "no")), "connection", SENT),
    (caused(REQUESTS_PROXY("no"), amidst=ConnectionResetError(104, "no")), "connection", SENT),
    (REQUESTS_CONNECTION("no"), "connection", SENT),
    (foreign("requests.exceptions", "ReadTimeout", REQUESTS_ERROR)("no"), "timeout", SENT),
    # the standard library
    (urllib.error.URLError(ConnectionRefusedError()), "connection", SENT),
    (caused(urllib.error.URLError("no"), amidst=ConnectionRefusedError(111, "no")), "connection", UNSENT),
    (http_error(503), "provider_error", UNSENT),
    (http.client.RemoteDisconnected("no"), "connection", SENT),
    (ConnectionRefusedError(111, "no"), "connection", UNSENT),
    (socket.gaierror(-2, "no"), "connection", UNSENT),
    (ssl.SSLCertVerificationError(1, "no"), "connection", UNSENT),
    (caused(ConnectionRefusedError(111, "no"), amidst=ConnectionResetError(104, "first")), "connection", SENT),
    (ConnectionResetError(104, "no"), "connection", SENT),
    (BrokenPipeError(32, "no"), "connection", SENT),
    (TimeoutError(), "timeout", SENT),
    (OSError(110, "timed out"), "timeout", SENT),
    (OSError(113, "no route"), "connection", SENT),
    (FileNotFoundError(2, "no"), "tool_error", SENT),
    (subprocess.TimeoutExpired("x", 1), "timeout", SENT),
    (subprocess.CalledProcessError(1, "x"), "tool_error", SENT),
    # redis: its client sends commands again by itself
    (caused(redis.exceptions.ConnectionError("no"), ConnectionRefusedError(111, "no")), "connection", SENT),
    (redis.exceptions.TimeoutError("no"), "timeout", SENT),
    (redis.exceptions.BusyLoadingError("no"), "provider_error", SENT),
    (redis.exceptions.AuthenticationError("no"), "authentication", SENT),
    (redis.exceptions.ResponseError("WRONGTYPE"), "tool_error", SENT),
    # sqlalchemy
    (OPERATIONAL("deadlock"), "provider_error", SENT),
    (foreign("sqlalchemy.exc", "OperationalError", DBAPI, connection_invalidated=True)("x"), "connection", SENT),
    (foreign("sqlalchemy.exc", "IntegrityError", DBAPI)("twice"), "tool_error", SENT),
    (POOL("full"), "timeout", UNSENT),
    # grpc
    (rpc("UNAVAILABLE", "failed to connect to all addresses; last error: …"), "connection", UNSENT),
    (rpc("UNAVAILABLE", "Socket closed"), "connection", SENT),
    (rpc("DEADLINE_EXCEEDED"), "timeout", SENT),
    (rpc("RESOURCE_EXHAUSTED"), "rate_limited", SENT),
    (rpc("PERMISSION_DENIED"), "permission", SENT),
    (rpc("ABORTED"), "provider_error", SENT),
    (rpc("CANCELLED"), "tool_error", SENT),
    # whatever else
    (ValueError("no"), "tool_error", SENT),
    (
        caused(RuntimeError("no"), caused(httpx.ConnectError("no"), ConnectionRefusedError(111, "x"))),
        "connection",
        SENT,
    ),
    (caused(ValueError("no"), amidst=ConnectionRefusedError(111, "no")), "tool_error", SENT),
    (ExceptionGroup("both", [httpx.ConnectError("no"), ValueError("no")]), "connection", SENT),
    (foreign("crm", "Busy", status_code=503)("no"), "provider_error", SENT),
    (foreign("crm", "Busy", status=429)("no"), "rate_limited", SENT),
    (KeyboardInterrupt(), "tool_error", SENT),
    (ToolError("no such order"), "tool_error", SENT),
    (RetryableToolError("busy"), "tool_error", UNSENT),
    (ToolTimeout("late"), "tool_timeout", SENT),
    (InvalidToolCall("no"), "invalid_tool_call", SENT),
]


def found(error: BaseException, **options: Any) -> ToolFinding:
    async def crm() -> None: ...

    finding = failed(tool(**options)(crm).declaration, error).finding
    assert finding is not None
    return finding


@pytest.mark.parametrize(("error", "error_class", "sent"), CASES, ids=lambda value: f"{type(value).__name__}")
def test_the_class_and_whether_it_was_taken(error: BaseException, error_class: str, sent: bool) -> None:
    finding = found(error)
    assert (finding.failure.error_class, finding.sent) == (error_class, sent)
    assert (finding.failure.source == "tool") == (error_class != "invalid_tool_call") or isinstance(error, ToolError)
    assert finding.failure.recoverable, "the model is told, and the run goes on"
    assert finding.failure.retryable == isinstance(error, RetryableToolError), "its policy says whether it is"


@pytest.mark.parametrize("call", ["crm", "nowhere"])
async def test_real_connections_that_do_not_come_about(call: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/" if call == "crm" else "http://nowhere.invalid/"
        raised: list[BaseException] = []
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
                await client.post(url)
        except httpx.ConnectError as error:
            raised.append(error)
        try:
            async with aiohttp.ClientSession() as session:
                await session.post(url)
        except aiohttp.ClientConnectorError as error:
            raised.append(error)
        codes = [(found(error).failure.code, found(error).sent) for error in raised]
    assert codes == [("connect_refused" if call == "crm" else "dns", UNSENT)] * 2


async def test_tasks_that_failed_together_are_more_than_one_request() -> None:
    async def call() -> None:
        raise httpx.ConnectError("no")

    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.TaskGroup() as group:
            group.create_task(call())
    assert found(raised.value).sent


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (answered(503, retry_after="7"), 7),
        (answered(429, retry_after="7", retry_after_ms="1500"), 1.5),
        (answered(503, retry_after="soon"), None),
        (http_error(429), 9),
        (RetryableToolError("busy", retry_after=3), 3),
        (RetryableToolError("busy", retry_after="3"), None),  # type: ignore[arg-type]
        (foreign("crm", "Busy", retry_after=5)("x"), None),
    ],
)
def test_the_wait_that_is_asked_for(error: BaseException, seconds: float | None) -> None:
    assert found(error).failure.retry_after == seconds


def test_declared_classes_go_first_by_the_nearest_base() -> None:
    class Ours(Exception):
        retry_after = 5

    class Theirs(Ours): ...

    class Down(httpx.ConnectError): ...

    errors = {Ours: ErrorClass.RATE_LIMITED, Theirs: ErrorClass.TIMEOUT, Down: ErrorClass.PROVIDER_ERROR}
    full, late, down = found(Ours("x"), errors=errors), found(Theirs(), errors=errors), found(Down("x"), errors=errors)
    assert (full.failure.error_class, full.sent, full.failure.retry_after) == ("rate_limited", UNSENT, 5)
    assert (late.failure.error_class, late.sent) == ("timeout", SENT)
    assert (down.failure.error_class, down.sent) == ("provider_error", SENT)
    assert found(httpx.ConnectError("x"), errors=errors).sent is UNSENT


@pytest.mark.parametrize(
    ("error", "of_request"),
    [
        (httpx.ConnectError("no"), False),
        (answered(503), False),
        (answered(500), True),
        (ConnectionResetError(104, "no"), True),
        (httpx.PoolTimeout("no"), None),
        (httpx.ReadTimeout("no"), None),
        (answered(429), None),
        (answered(404), None),
        (ValueError("no"), None),
    ],
)
def test_signs_of_an_outage(error: BaseException, of_request: bool | None) -> None:
    finding = found(error)
    assert (finding.sign.of_request if finding.sign else None) is of_request
    assert finding.sign is None or not finding.sign.of_model


class _Hostile(Exception):
    @property
    def response(self) -> Any:
        raise SystemExit

    @property
    def retry_after(self) -> Any:
        raise SystemExit


@pytest.mark.parametrize(
    "make",
    [
        lambda: _Hostile("x"),
        lambda: foreign("grpc", "RpcError", code=lambda _: 1 / 0)("x"),
        lambda: foreign("x", "Odd", __str__=lambda _: 1 / 0)("x"),
    ],
)
def test_an_exception_that_cannot_be_looked_at_is_a_tool_error(make: Callable[[], BaseException]) -> None:
    finding = found(make())
    assert (finding.failure.error_class, finding.sent) == ("tool_error", SENT)


def test_a_chain_without_an_end_says_nothing() -> None:
    last: BaseException = httpx.ConnectError("no")
    for _ in range(40):
        last = caused(httpx.ConnectError("no"), last)
    assert found(last).sent


def test_each_class_has_words_for_all() -> None:
    assert {found(error).failure.error_class for error, *_ in CASES} - {"invalid_tool_call"} <= TOOL_CLASSES.keys()
    assert all(sentence.endswith(".") for sentence in TOOL_CLASSES.values())
