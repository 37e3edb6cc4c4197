"""Which failures look like an outage, of what, and whether the request may be to blame."""

from __future__ import annotations

import pytest

from palaver.errors import OutageSign, classify, sign_of_outage
from palaver.errors.exceptions import FirstTokenTimeout, IdleTimeout, ProviderHTTPError, TruncatedStream

PROVIDER, GATEWAY = OutageSign(of_model=False, of_request=False), OutageSign(of_model=False, of_request=True)
MODEL, REQUEST = OutageSign(of_model=True, of_request=False), OutageSign(of_model=True, of_request=True)


def answer(status: int, body: bytes = b"{}") -> ProviderHTTPError:
    return ProviderHTTPError(status, body, {})


def empty_first_token() -> FirstTokenTimeout:
    error = FirstTokenTimeout("nothing came")
    error.status = 200
    return error


@pytest.mark.parametrize(
    ("error", "sign"),
    [
        (ConnectionRefusedError(), PROVIDER),
        (ConnectionResetError(), GATEWAY),
        *((answer(status), MODEL) for status in (502, 503, 504, 520, 529)),
        (answer(503, b"<html>"), MODEL),
        *((answer(status), REQUEST) for status in (500, 501, 599)),
        (FirstTokenTimeout("late"), REQUEST),
        (empty_first_token(), REQUEST),
        (answer(500, b'{"error": {"code": "context_length_exceeded"}}'), None),
        *((answer(status), None) for status in (400, 401, 402, 403, 404, 408, 409, 429)),
        (IdleTimeout("stalled"), None),
        (TruncatedStream("cut"), None),
        (RuntimeError("ours"), None),
    ],
)
def test_signs(error: Exception, sign: OutageSign | None) -> None:
    if isinstance(error, TruncatedStream | IdleTimeout):
        error.status = 200
    assert sign_of_outage(classify(error, source="model", provider="fake", model="echo")) == sign


def test_what_is_no_providers_failure_is_none() -> None:
    assert sign_of_outage(classify(ConnectionRefusedError(), source="tool")) is None
    assert sign_of_outage(classify(OSError(24, "no sockets left"), source="model", provider="fake", model="m")) is None
