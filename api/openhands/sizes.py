"""The most that an event may be: clients take frames of 1 MiB, and one that is larger closes their socket for good."""

from __future__ import annotations

from typing import Any, Final

import orjson

from palaver.vocabulary.limits import KIB

MOST: Final = 900 * KIB
"""Bytes of an event as JSON."""
_TEXTS: Final = (128 * KIB, 16 * KIB)
"""Characters that are left of a long text, if that is enough."""
_TEXT: Final = KIB
_ITEMS: Final = 24
"""What is left in any case of a text and of a list: an event has two lists of texts at most, of 6 KiB each as JSON."""
_NOT_SHOWN: Final = {"kind": "MCPToolAction", "data": {"left_out": "The arguments are too large to be shown."}}


def fitting(event: dict[str, Any]) -> dict[str, Any]:
    """An event that a client can take: of one that is too large, long texts are cut, and if it has many short ones, the
    first are kept. It is so wherever it is shown, so that no two tellings of it differ."""
    shown = event
    for longest in _TEXTS:
        if len(orjson.dumps(shown)) <= MOST:
            return shown
        shown = _cut(event, longest)
    if len(orjson.dumps(shown)) <= MOST:
        return shown
    least: dict[str, Any] = _cut({**event, "action": _NOT_SHOWN} if "action" in event else event, _TEXT, _ITEMS)
    return least


def _cut(value: Any, longest: int, items: int | None = None) -> Any:
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:longest]}… [{len(value) - longest} characters more]"
    if isinstance(value, dict):
        return {name: _cut(each, longest, items) for name, each in value.items()}
    if isinstance(value, list):
        return [_cut(each, longest, items) for each in value[:items]]
    return value
