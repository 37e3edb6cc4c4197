"""Each exception has one class and code; orders to stop are let through; a wrapper gives way to its cause."""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
import socket
import ssl
import subprocess
import sys

import billiard.exceptions
import httpx
import kombu.exceptions
import pydantic
import pytest
import redis.exceptions

from palaver import errors
from palaver.errors import ErrorClass, Failure, PalaverError, classify, vocabulary
from tests.waiting import PATIENCE

PIPELINE = "Command # 1 (SET x -BUSY) of pipeline caused error:"


@pytest.mark.parametrize(
    ("error", "error_class", "code"),
    [
        (ConnectionRefusedError(111, "x"), "connection", "connect_refused"),
        (ConnectionResetError(), "connection", "connection_reset"),
        (BrokenPipeError(), "connection", "connection_reset"),
        (ConnectionAbortedError(), "connection", "connection_reset"),
        (ConnectionError(), "connection", "connection"),
        (socket.gaierror(-2, "x"), "connection", "dns"),
        (ssl.SSLError(1, "x"), "connection", "tls"),
        (ssl.SSLCertVerificationError(1, "x"), "connection", "tls_certificate"),
        (ssl.SSLEOFError(8, "x"), "connection", "server_disconnected"),
        (OSError(113, "no route"), "connection", "unreachable"),
        (OSError(24, "too many files"), "connection", "out_of_sockets"),
        (OSError(110, "x"), "timeout", "timeout"),
        (OSError(28, "no space"), "internal", "internal"),
        (FileNotFoundError(2, "x"), "internal", "internal"),
        (TimeoutError(), "timeout", "timeout"),
        (asyncio.IncompleteReadError(b"", 1), "connection", "stream_truncated"),
        (json.JSONDecodeError("x", "", 0), "internal", "json"),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "x"), "internal", "encoding"),
        (UnicodeError("encoding with 'idna' codec failed"), "invalid_request", "invalid_url"),
        (RecursionError(), "internal", "recursion"),
        (MemoryError(), "internal", "out_of_memory"),
        (KeyError("x"), "internal", "internal"),
        (Exception(), "internal", "internal"),
        (kombu.exceptions.OperationalError(), "storage", "broker_unavailable"),
        (billiard.exceptions.SoftTimeLimitExceeded(), "timeout", "soft_time_limit"),
        (billiard.exceptions.WorkerLostError(), "worker_lost", "worker_lost"),
        (httpx.RemoteProtocolError("peer closed connection without …"), "connection", "stream_truncated"),
        (httpx.RemoteProtocolError("Server disconnected"), "connection", "server_disconnected"),
        (redis.exceptions.ResponseError("OOM command not allowed"), "storage", "store_out_of_memory"),
        (redis.exceptions.ResponseError("Error running script: -OOM no"), "storage", "store_out_of_memory"),
        (redis.exceptions.ResponseError("MISCONF cannot persist"), "storage", "store_read_only"),
        (redis.exceptions.ResponseError("BUSY running a script"), "storage", "store_busy"),
        (redis.exceptions.ResponseError(f"{PIPELINE} ('BUSY running a script',)"), "storage", "store_busy"),
        (redis.exceptions.ResponseError(f'{PIPELINE} ("MISCONF can\'t persist",)'), "storage", "store_read_only"),
        (redis.exceptions.ResponseError(f"{PIPELINE} NOREPLICAS not enough"), "storage", "store_read_only"),
        (redis.exceptions.ResponseError(f"{PIPELINE} ('WRONGTYPE',)"), "internal", "store_misused"),
        (redis.exceptions.ResponseError("BUSYGROUP exists"), "internal", "store_misused"),
        (redis.exceptions.ResponseError("WRONGTYPE"), "internal", "store_misused"),
        (redis.exceptions.AuthenticationError("x"), "storage", "store_access"),
        (errors.MalformedResponse(), "provider_error", "bad_model_response"),
        (errors.EmptyCompletion(), "provider_error", "empty_completion"),
        (errors.EmptyTurn(), "provider_error", "empty_completion"),
        (errors.TruncatedStream(), "connection", "stream_truncated"),
        (errors.ResponseTooLarge(), "provider_error", "response_too_large"),
        (errors.TooManyToolCalls(), "provider_error", "too_many_tool_calls"),
        (errors.ToolCallTooLarge(), "provider_error", "tool_call_too_large"),
        (errors.FirstTokenTimeout(), "timeout", "first_token_timeout"),
        (errors.IdleTimeout(), "timeout", "idle_timeout"),
        (errors.TotalTimeout(), "timeout", "total_timeout"),
        (errors.ToolError("x"), "tool_error", "tool_error"),
        (errors.RetryableToolError("x"), "tool_error", "tool_error"),
        (errors.ToolTimeout(), "tool_timeout", "tool_timeout"),
        (errors.InvalidToolCall("x"), "invalid_tool_call", "invalid_arguments"),
        (errors.UnknownTool("x"), "invalid_tool_call", "unknown_tool"),
        (errors.ConfigurationError("x"), "invalid_request", "configuration"),
        (errors.UnknownRun("x"), "internal", "state_lost"),
        (errors.UnknownConversation("x"), "internal", "state_lost"),
        (errors.UnknownAgent("x", 7), "internal", "state_lost"),
        (errors.StateConflict("run_ended"), "internal", "internal"),
        (errors.IdempotencyMismatch(), "internal", "internal"),
        (errors.NoRoom("too_many_runs"), "internal", "internal"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_an_exception_has_its_class_and_code(error: Exception, error_class: str, code: str) -> None:
    failure = classify(error)
    assert (failure.error_class, failure.code) == (error_class, code)


@pytest.mark.parametrize("error", [errors.ResponseTooLarge(), redis.exceptions.AuthenticationError(), KeyError()])
def test_what_another_attempt_cannot_mend_is_not_retryable(error: Exception) -> None:
    assert not classify(error).retryable


def test_every_exception_of_ours_is_judged_or_let_through() -> None:
    kinds = [thing for thing in vars(errors).values() if inspect.isclass(thing) and issubclass(thing, PalaverError)]
    assert len(kinds) > 20
    for kind in kinds:
        error = kind.__new__(kind)  # a subclass that does not call our constructor is judged, too
        if isinstance(error, errors.ControlFlow):
            with pytest.raises(kind):
                classify(error)
        elif kind is not errors.ProviderHTTPError:  # judged by its answer: test_classify_responses.py
            assert isinstance(classify(error), Failure)


@pytest.mark.parametrize(
    "order",
    [errors.StaleLease(), errors.NewerVersion(), asyncio.CancelledError(), KeyboardInterrupt(), SystemExit()],
)
def test_an_order_to_stop_is_no_failure(order: BaseException) -> None:
    with pytest.raises(type(order)):
        classify(order)


def test_a_wrapper_is_judged_by_its_cause() -> None:
    def caused(error: Exception, cause: BaseException) -> Exception:
        error.__cause__ = cause
        return error

    refused = caused(OSError("All connection attempts failed"), ConnectionRefusedError(111, ""))
    assert classify(caused(httpx.ConnectError(""), refused)).code == "connect_refused"
    assert classify(caused(httpx.ConnectTimeout(""), TimeoutError())).code == "connect_timeout"
    # Transports on aiohttp may call every failed connection a ConnectTimeout.
    assert classify(caused(httpx.ConnectTimeout(""), refused)).error_class == "connection"
    assert classify(caused(RuntimeError(""), httpx.ReadTimeout(""))).code == "read_timeout"
    assert classify(caused(RuntimeError(""), KeyError(""))).code == "internal"
    assert classify(caused(RuntimeError(""), errors.IdleTimeout())).code == "idle_timeout"
    response = httpx.Response(429, request=httpx.Request("GET", "http://127.0.0.1"))
    status = httpx.HTTPStatusError("", request=response.request, response=response)
    assert classify(caused(RuntimeError(""), status)).code == "http_429"
    assert classify(caused(status, KeyError(""))).code == "http_429"
    assert classify(caused(httpx.ReadError(""), json.JSONDecodeError("", "", 0))).code == "read_error"
    circle = caused(RuntimeError(), ValueError())
    caused(circle.__cause__, circle)  # type: ignore[arg-type]
    assert classify(circle).code == "internal"


def test_a_group_is_judged_by_its_first_member_unless_one_is_an_order() -> None:
    group = ExceptionGroup("", [ExceptionGroup("", [httpx.ReadTimeout("")]), KeyError()])
    assert classify(group).code == "read_timeout"
    with pytest.raises(errors.StaleLease):
        classify(ExceptionGroup("", [httpx.ReadError(""), ExceptionGroup("", [errors.StaleLease()])]))


def test_what_cannot_be_read_is_the_providers_error_only_while_reading_a_model() -> None:
    class Reply(pydantic.BaseModel):
        text: str

    with pytest.raises(pydantic.ValidationError) as caught:
        Reply.model_validate({"text": 5})
    for error in (
        caught.value,
        json.JSONDecodeError("x", "", 0),
        UnicodeDecodeError("utf-8", b"", 0, 1, "x"),
    ):
        assert classify(error, source="model").code == "bad_model_response"
        assert classify(error).error_class == "internal"


def test_what_a_tool_raises_is_told_to_the_model() -> None:
    for error in (
        KeyError("x"),
        httpx.ConnectError(""),
        redis.exceptions.ConnectionError(),
        errors.UnknownRun("x"),
    ):
        failure = classify(error, source="tool")
        assert (failure.error_class, failure.recoverable, failure.retryable) == ("tool_error", True, False)
        assert type(error).__name__ in failure.message
    assert classify(httpx.ReadTimeout(""), source="tool").error_class == "tool_timeout"
    assert classify(errors.UnknownTool(), source="tool").error_class == "invalid_tool_call"
    retryable = classify(errors.RetryableToolError("busy", retry_after=3), source="tool")
    assert (retryable.retryable, retryable.recoverable, retryable.retry_after) == (True, True, 3)


def test_the_message_of_the_unforeseen_is_not_shown() -> None:
    failure = classify(RuntimeError("prompt: my secret diary"))
    assert failure.message == "Internal error. (RuntimeError)"


def test_an_exception_that_cannot_be_printed_is_judged() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert classify(Mute(), source="tool").message == "Mute"


def test_exceptions_survive_a_process_pool() -> None:
    for error in (
        errors.ProviderHTTPError(429, b"{}", {"retry-after": "1"}, "fake", "m", "req_1"),
        errors.RetryableToolError("x", retry_after=2.0),
        errors.StateConflict("run_ended", "run_1"),
        errors.RunFailed({"message": "x"}, "run_1"),
        errors.ConfigurationError("x", pointer="/a"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)


def test_an_exception_without_words_says_its_docstring() -> None:
    assert str(errors.StaleLease()) == "The lease was taken over: another worker goes on with this step."
    assert str(PalaverError()) == "Something went wrong in Palaver."


@pytest.mark.slow
def test_the_judge_imports_no_library_it_judges() -> None:
    script = "import sys, palaver.errors; print(*({'redis', 'aiohttp', 'kombu'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout.strip() == ""


def test_every_class_has_facts_and_a_docstring_in_the_source() -> None:
    assert set(errors.FACTS) == set(ErrorClass)
    source = inspect.getsource(vocabulary)
    for member in ErrorClass:
        assert f'    {member.name} = "{member.value}"\n    """' in source
