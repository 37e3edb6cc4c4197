"""Bounds of an answer, whatever the protocol: they are checked before it costs anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from palaver.errors import ResponseTooLarge
from palaver.schemas.models import ToolCall, Usage
from palaver.secrets.redaction import redact
from palaver.vocabulary.limits import count_exceeded, limit_of

SMALL: Final = 64 * 1024
"""Bytes of JSON that are too few to hold the loop, whatever they are."""
_LONGEST_NAME: Final = 512
"""Characters of what a provider calls an answer: proxies put names of their own around it."""
_ESCAPED: Final = 6
"""Bytes that a character may take as JSON."""


def parsed(payload: bytes) -> Any:
    """The JSON. Objects and arrays are counted before they are made: fifty thousand take some 10 ms.

    Raises:
        ResponseTooLarge: they are more.
        ValueError: it is no JSON.
    """
    if len(payload) > SMALL and payload.count(b"{") + payload.count(b"[") > limit_of("answer_values"):
        raise too_large("answer_values", "a piece of the answer has", "objects and arrays")
    return orjson.loads(payload)


class Parts:
    """A count of the parts of one line or document that may still be taken apart: each costs some microseconds of
    Python."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = limit_of("answer_parts")

    def admit(self, value: Any) -> None:
        """Take apart ``value``, if it is an object or an array. Raises ResponseTooLarge if that is too much."""
        if isinstance(value, dict | list):
            self._left -= len(value)
            if self._left < 0:
                raise too_large("answer_parts", "a piece of the answer has", "parts to be looked at one by one")


def name_of(name: Any) -> str:
    """A provider's name for something; empty for what is none, or has a secret of this process in it."""
    return name if isinstance(name, str) and len(name) <= _LONGEST_NAME and redact(name) == name else ""


def used(*, prompt: int, cached: int, cache_write: int, output: int, reasoning: int) -> Usage:
    """The usage of a call in tokens; a part is no more than what it is a part of."""
    cached = min(prompt, cached)
    return Usage(
        model_calls=1,
        input_tokens=prompt,
        cached_tokens=cached,
        cache_write_tokens=min(prompt - cached, cache_write),
        output_tokens=output,
        reasoning_tokens=min(output, reasoning),
    )


def check_stored(length: int, content: str, calls: Sequence[ToolCall]) -> None:
    """Raises ResponseTooLarge if the store would have to take more than may be in one piece; ``length`` is how many
    characters it is at most."""
    if length * _ESCAPED <= limit_of("answer_stored"):
        return
    if sum(len(orjson.dumps(text)) for text in (content, *(call.arguments for call in calls))) > limit_of(
        "answer_stored"
    ):
        raise too_large("answer_stored", "as JSON, the answer has", "bytes")


def too_large(limit: str, what: str, unit: str) -> ResponseTooLarge:
    """Something is beyond ``limit``."""
    count_exceeded(limit)
    return ResponseTooLarge(f"{what} more than {limit_of(limit)} {unit}")
