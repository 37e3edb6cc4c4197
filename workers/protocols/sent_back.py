"""The fields that a provider wants back unchanged with an answer: as much as may be stored, and nothing with a secret
in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sized
from typing import Any, Final

import orjson

from palaver.secrets.redaction import redact
from palaver.vocabulary.limits import limit_of

from .bounds import too_large

log = logging.getLogger("palaver.workers.protocols.sent_back")

_MOST: Final = limit_of("answer_opaque")
_WHAT: Final = "what the answer has to be sent back unchanged is"


class SentBack:
    """Base of what gathers it while an answer comes."""

    def __init__(self) -> None:
        self._size = 0

    def grow(self, size: int) -> None:
        """Raises ResponseTooLarge if, with this, what is to be kept is larger than may be."""
        self._size += size
        if self._size > _MOST:
            raise too_large("answer_opaque", _WHAT, "bytes")


def admit_part(there: Sized, what: str) -> None:
    """A part of an answer, such as a block, begins behind those that are ``there``; ``what`` they are. Raises
    ResponseTooLarge if they are too many."""
    if len(there) == limit_of("answer_blocks"):
        raise too_large("answer_blocks", "the answer has", what)


def unchanged(text: str) -> orjson.Fragment | None:
    """The JSON ``text`` as it came. None if a secret of this process is in it: what may be signed is left out rather
    than changed."""
    if redact(text) != text:
        log.warning("what a provider wants back unchanged has a secret of this process in it and is not kept")
        return None
    return orjson.Fragment(text)


def as_stored(fields: Mapping[str, Any], *, cut: bool = False) -> str:
    """All of it as one JSON object. Empty if it is larger than may be and the answer was ``cut`` off.

    Raises:
        ResponseTooLarge: it is larger than may be.
    """
    text = orjson.dumps(fields)
    if len(text) <= _MOST:
        return text.decode()
    if cut:
        return ""
    raise too_large("answer_opaque", _WHAT, "bytes")
