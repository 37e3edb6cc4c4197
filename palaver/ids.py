"""Names of runs and conversations. An id carries its shard, so the id alone finds the keys.

    run_00b3k9…   prefix, two hex digits of shard, 26 characters of Crockford base32 (128 random bits)

128 bits cannot be guessed, so an id says nothing about its neighbours.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final, Literal

MAX_SHARDS: Final = 256
"""Two hex digits."""

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_PATTERN: Final = re.compile(rf"(run|conv)_([0-9a-f]{{2}})[{_ALPHABET}]{{26}}")
_TOOL_CALL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def new_id(prefix: Literal["run", "conv"], shard: str) -> str:
    """A fresh id on ``shard`` (two hex digits)."""
    number = secrets.randbits(130)
    return f"{prefix}_{shard}" + "".join(_ALPHABET[(number >> shift) & 31] for shift in range(0, 130, 5))


def shard_of(any_id: str) -> str:
    """The two hex digits of shard that ``any_id`` carries.

    Raises:
        ValueError: when it is no id of a run or a conversation.
    """
    match = _PATTERN.fullmatch(any_id)
    if match is None:
        raise ValueError(f"not an id: {any_id[:80]!r}")
    return match.group(2)


def is_id(prefix: Literal["run", "conv"], text: str) -> bool:
    """Whether ``text`` is a well-formed id of that kind."""
    match = _PATTERN.fullmatch(text)
    return match is not None and match.group(1) == prefix


def all_shards(shards: int) -> tuple[str, ...]:
    """The first ``shards`` many, each as two hex digits."""
    return tuple(f"{shard:02x}" for shard in range(shards))


def pick_shard(seed: str, shards: int) -> str:
    """The shard, of ``shards`` many, that ``seed`` always falls on."""
    return f"{hashlib.blake2s(seed.encode()).digest()[0] % shards:02x}"


def safe_call_id(text: str) -> bool:
    """Whether a provider's tool call id can be part of a step's name (letters, digits, ``_``, ``-``; at most 64)."""
    return _TOOL_CALL.fullmatch(text) is not None


def call_of(step: str) -> str | None:
    """The id of the tool call that the step of this name answers (``3/call_id``); None if it answers none (``3``)."""
    return step.partition("/")[2] or None
