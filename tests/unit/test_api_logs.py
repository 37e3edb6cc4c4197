"""The log lines of requests: what may stand in an address, and not in a line."""

from __future__ import annotations

import io
import logging
from logging.config import dictConfig

import pytest

from api.logs import configuration
from palaver.logs import LogFormat

PATH = "/openhands/sockets/events/1"


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("session_api_key=abcdef", "session_api_key=[redacted]"),
        ("limit=5&Session_API_Key=abcdef&order=asc", "limit=5&Session_API_Key=[redacted]&order=asc"),
        ("access_token=abcdef&access_token=abcdef", "access_token=[redacted]&access_token=[redacted]"),
        ("session%5Fapi%5Fk%65y=abcdef", "session%5Fapi%5Fk%65y=[redacted]"),
        ("after=12&title=a%20b", "after=12&title=a%20b"),
    ],
)
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_key_of_an_address_is_told(log_format: LogFormat, query: str, told: str) -> None:
    written, made = io.StringIO(), configuration(log_format)
    made["handlers"]["requests"]["stream"] = written
    # As uvicorn's logger is in operation.
    del made["root"]
    dictConfig({**made, "loggers": {"access of a test": made["loggers"]["uvicorn.access"]}})
    access = logging.getLogger("access of a test")
    access.info('%s - "%s %s HTTP/%s" %d', "127.0.0.1:1", "GET", f"{PATH}?{query}", "1.1", 404)
    assert f"GET {PATH}?{told} HTTP/1.1" in written.getvalue()
    assert "abcdef" not in written.getvalue()
