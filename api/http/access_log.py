"""A log line for each request: its caller, its path, the answer, and the time that it took."""

from __future__ import annotations

import logging
import re
from typing import Any, Final
from urllib.parse import unquote

from starlette.types import Scope

from palaver.secrets.redaction import REDACTED

ACCESS: Final = logging.getLogger("palaver.access")
_FIELD: Final = re.compile(r"((?:^|&)([^=&]*)=)[^&]*")
_OF_A_KEY: Final = (
    *("key", "token", "secret", "passw", "pwd", "auth", "bearer", "jwt", "session", "cookie", "credential", "sign"),
    *("nonce", "otp", "assertion", "%"),
)
"""Parts of names of fields that may hold a key; a name that is escaped may be any."""
_KEYS: Final = frozenset({"sig", "code"})
"""Such names, as they are."""
_LIKE_A_KEY: Final = re.compile(
    r"\b(?:eyJ|AKIA|ASIA|AIza|ya29\.|(?:[spr]k|gsk|xai|hf|pplx|plv|whsec|glpat|gh[opsu]|github_pat|xox[abeprs])[-_])"
    r"[\w-]{8,}"
)
"""The beginnings of tokens and of keys of known services, with what follows them."""
_LETTERS: Final = re.compile(r"[A-Za-z0-9]{16,}")
"""Runs of letters that may have been drawn by lot: no word and no id of ours has capitals, small letters and digits."""
_HEX: Final = re.compile(r"(?i)(?<![0-9a-z_-])[0-9a-f]{32,}(?![0-9a-z])")
"""Behind a ``?`` alone: in a path it is the id of a conversation."""
_NOBODY: Final = "-"


def log_request(scope: Scope, status: int, key: str | None, seconds: float) -> None:
    """Write the line of a request that was answered, or of a socket that was opened. ``key`` is the name of one:
    never the key."""
    if not ACCESS.isEnabledFor(logging.INFO):
        return
    client, version = scope.get("client"), scope.get("http_version", "1.1")
    where = f"{client[0]}:{client[1]}" if client else ""
    path = scope["path"]
    if _is_key(path):
        path = "/".join(REDACTED if _is_key(part) else part for part in path.split("/"))
    path, milliseconds = path.encode("ascii", "backslashreplace").decode(), round(1000 * seconds, 1)
    method = scope.get("method", "WEBSOCKET")
    fields: dict[str, Any] = {"method": method, "path": path, "status": status, "duration_ms": milliseconds}
    query = scope["query_string"].decode("latin-1") if method != "WEBSOCKET" else ""
    if query:
        query = _FIELD.sub(_redacted, query)
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
    name, value = field[2].lower(), unquote(field[0][len(field[1]) :])
    named = name in _KEYS or any(part in name for part in _OF_A_KEY)
    return field[1] + REDACTED if named or _is_key(value) or _HEX.search(value) else field[0]


def _is_key(text: str) -> bool:
    """Tell whether a part of an address looks like a key or a token, whatever it is called."""
    # Most addresses have no capitals, and no time is to be lost on them.
    if not text.islower() and any(map(_is_drawn, _LETTERS.findall(text))):
        return True
    return _LIKE_A_KEY.search(text) is not None


def _is_drawn(run: str) -> bool:
    return all(any(has(char) for char in run) for has in (str.isupper, str.islower, str.isdigit))
