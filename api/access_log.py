"""A log line for each request: its caller, its path, the answer, and the time that it took."""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from starlette.types import Scope

from palaver.secrets.redaction import REDACTED

ACCESS: Final = logging.getLogger("palaver.access")
_FIELD: Final = re.compile(r"((?:^|&)([^=&]*)=)[^&]*")
_OF_A_KEY: Final = re.compile(r"(?i)key|token|secret|password|%")
"""The pattern of names of fields that may hold a key; a name that is escaped may be any."""
_NOBODY: Final = "-"


def log_request(scope: Scope, status: int, key: str | None, seconds: float) -> None:
    """Write the line of a request that was answered, or of a socket that was opened. ``key`` is the name of one:
    never the key."""
    if not ACCESS.isEnabledFor(logging.INFO):
        return
    client, version = scope.get("client"), scope.get("http_version", "1.1")
    where = f"{client[0]}:{client[1]}" if client else ""
    path, milliseconds = scope["path"].encode("ascii", "backslashreplace").decode(), round(1000 * seconds, 1)
    method = scope.get("method", "WEBSOCKET")
    fields: dict[str, Any] = {"method": method, "path": path, "status": status, "duration_ms": milliseconds}
    query = _FIELD.sub(_redacted, scope["query_string"].decode("latin-1")) if method != "WEBSOCKET" else ""
    if query:
        fields["query"] = query
    if key:
        fields["key"] = key
    if where:
        fields["client"] = where
    target = f"{path}?{query}" if query else path
    request = scope.get("state", {}).get("request_id", _NOBODY)
    tail = f"{request} {key or _NOBODY} {milliseconds} ms"
    extra = {"fields": fields, "tail": tail}
    ACCESS.info('%s - "%s %s HTTP/%s" %d', where, method, target, version, status, extra=extra)


def _redacted(field: re.Match[str]) -> str:
    return field[1] + REDACTED if _OF_A_KEY.search(field[2]) else field[0]
