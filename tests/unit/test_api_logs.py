"""The log lines of requests: what may stand in an address, and not in a line."""

from __future__ import annotations

import io
import json
import logging
from logging.config import dictConfig

import pytest

from api.http import access_log
from api.http.access_log import log_request
from api.http.logs import configuration
from palaver.telemetry.logs import LogFormat, log_context

PATH = "/openhands/sockets/events/1"


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("session_api_key=abcdef", "session_api_key=[redacted]"),
        ("limit=5&Session_API_Key=abcdef&order=asc", "limit=5&Session_API_Key=[redacted]&order=asc"),
        ("access_token=abcdef&access_token=abcdef", "access_token=[redacted]&access_token=[redacted]"),
        ("session%5Fapi%5Fk%65y=abcdef", "session%5Fapi%5Fk%65y=[redacted]"),
        *(
            (f"{name}=abcdef", f"{name}=[redacted]")
            for name in (
                "jwt",
                "bearer",
                "auth",
                "authorization",
                "session",
                "session_id",
                "PHPSESSIONID",
                "code",
                "client_assertion",
                "X-Amz-Signature",
                "sig",
                "X-Amz-Credential",
                "passwd",
                "pwd",
                "otp",
                "nonce",
                "cookie",
            )
        ),
        ("after=eyJhbGciOiJIUzI1NiJ9.abcdef.x", "after=[redacted]"),
        ("q=a+Bearer%20eyJhbGciOiJIUzI1NiJ9abcdef", "q=[redacted]"),
        ("q=sk-proj-abcdefghijkl", "q=[redacted]"),
        ("q=plv_abcdef0123456789_abcdef", "q=[redacted]"),
        ("q=ghp_abcdefghijklmnop", "q=[redacted]"),
        ("q=abcdef8fJw0QmZr2tYxL9vKc", "q=[redacted]"),
        ("a=1&sid=0123456789abcdef0123456789abcdef&b=2", "a=1&sid=[redacted]&b=2"),
        ("after=12&title=a%20b", "after=12&title=a%20b"),
        ("after=run_00k3v9x2m4q8w1z5c7b6n0j3h2g4&limit=5", "after=run_00k3v9x2m4q8w1z5c7b6n0j3h2g4&limit=5"),
        ("error_code=rate_limited&model=openai/gpt-5.1-mini", "error_code=rate_limited&model=openai/gpt-5.1-mini"),
        ("agent=Customer-Support-Agent-Version-2", "agent=Customer-Support-Agent-Version-2"),
        ("created_after=2026-01-01T00:00:00Z", "created_after=2026-01-01T00:00:00Z"),
    ],
)
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_key_of_an_address_is_told(
    log_format: LogFormat, query: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, made = io.StringIO(), configuration(log_format)
    made["handlers"]["requests"]["stream"] = written
    monkeypatch.setattr(access_log, "ACCESS", logging.getLogger("access of a test"))
    # As the logger is in operation.
    del made["root"]
    dictConfig({**made, "loggers": {"access of a test": made["loggers"]["palaver.access"]}})
    scope = {"method": "GET", "path": PATH, "query_string": query.encode(), "client": ("127.0.0.1", 1)}
    log_request(scope, 404, "ann", 0.0123)
    assert f"GET {PATH}?{told} HTTP/1.1" in written.getvalue()
    assert "abcdef" not in written.getvalue()


def test_a_request_is_logged_in_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    written, made = io.StringIO(), configuration("json")
    made["handlers"]["requests"]["stream"] = written
    dictConfig({**made, "loggers": {"access of a test": made["loggers"]["palaver.access"]}})
    monkeypatch.setattr(access_log, "ACCESS", logging.getLogger("access of a test"))
    scope = {"method": "GET", "path": "/v1/runs", "query_string": b"limit=5&token=abc", "client": ("127.0.0.1", 1)}
    with log_context(request="req_1"):
        log_request(scope, 200, "ann", 0.01234)
    found = json.loads(written.getvalue())
    fields = {
        "method": "GET", "path": "/v1/runs", "query": "limit=5&token=[redacted]", "status": 200, "key": "ann",
        "duration_ms": 12.3, "client": "127.0.0.1:1", "request": "req_1", "logger": "access of a test",
    }  # fmt: skip
    assert fields.items() <= found.items()


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/runs/run_00k3v9x2m4q8w1z5c7b6n0j3h2g4/events", None),
        ("/openhands/api/conversations/0123456789abcdef0123456789abcdef", None),
        ("/openai/v1/models/Meta-Llama-3.1-8B-Instruct-Turbo", None),
        ("/v1/keys/plv_abcdef0123456789_abcdef", "/v1/keys/[redacted]"),
        ("/hook/eyJhbGciOiJIUzI1NiJ9.abcdef.x/end", "/hook/[redacted]/end"),
        ("/bot8fJw0QmZr2tYxL9vKc/send", "/[redacted]/send"),
    ],
)
def test_no_key_of_a_path_is_told(path: str, told: str | None, caplog: pytest.LogCaptureFixture) -> None:
    scope = {"method": "GET", "path": path, "query_string": b"", "client": ("127.0.0.1", 1)}
    with caplog.at_level(logging.INFO, "palaver.access"):
        log_request(scope, 404, "ann", 0.0123)
    assert f"GET {told or path} HTTP/1.1" in caplog.text
