"""Marks by which the user steers the server in the last message: `[[name {...}]]`."""

from __future__ import annotations

import json
from typing import Any

from .requests import InvalidRequest


def written(last_user: str, name: str) -> str | None:
    """Return the JSON text of the object that the user wrote, if any. Raises InvalidRequest if it is no object."""
    mark = f"[[{name}"
    at = last_user.find(mark)
    if at < 0:
        return None
    text = last_user[at + len(mark) :].lstrip()
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"{mark} …]] is not JSON: {error}", "messages") from None
    if not isinstance(value, dict) or not text[end:].lstrip().startswith("]]"):
        raise InvalidRequest(f"{mark} …]] must hold one JSON object.", "messages")
    return text[:end]


def written_object(last_user: str, name: str) -> dict[str, Any] | None:
    """Return that object. Raises InvalidRequest as well."""
    text = written(last_user, name)
    value: dict[str, Any] | None = None if text is None else json.loads(text)
    return value
