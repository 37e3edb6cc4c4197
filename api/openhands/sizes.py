"""The most that an event may be: clients take frames of 1 MiB, and one that is larger closes their socket for good."""

from __future__ import annotations

from typing import Any, Final

import orjson

from palaver.limits import KIB

MOST: Final = 900 * KIB
"""Bytes of an event as JSON."""
_LONGEST: Final = 256 * KIB
_LEAST: Final = 64


def fitting(event: dict[str, Any]) -> dict[str, Any]:
    """An event that a client can take: of one that is too large, the longest texts are cut. It is so wherever it is
    shown, so that no two tellings of it differ."""
    longest = _LONGEST
    shown = event
    while len(orjson.dumps(shown)) > MOST and longest > _LEAST:
        shown = _cut(event, longest)
        longest //= 2
    return shown


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:longest]}… [{len(value) - longest} characters more]"
    if isinstance(value, dict):
        return {name: _cut(each, longest) for name, each in value.items()}
    if isinstance(value, list):
        return [_cut(each, longest) for each in value]
    return value
