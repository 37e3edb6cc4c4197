"""Names of runs, conversations and webhooks. An id carries its shard, so the id alone finds the keys.

    run_00b3k9…    prefix, two characters of shard, 26 characters of Crockford base32 (130 random bits)
    conv_00b3k9…   the same, but of 128 bits from which the shard follows: a UUID is the id of a conversation
    run_00k7m2qx_b3k9…    the same of a tenant other than the default one: six characters behind the shard are its tag
    wh_00b3k9…     a webhook: as a run, and its shard says nothing

Whose something is can be told from its id alone. Numbers that Palaver makes cannot be guessed, so an id says nothing
about its neighbours.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from functools import cache
from itertools import count, product
from typing import Final, Literal
from uuid import UUID, uuid4

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
MAX_SHARDS: Final = len(_ALPHABET) ** 2
"""Two characters."""
_OF_ONE_BYTE: Final = 256
"""Shards that one byte of a hash tells apart: where there are no more, ids are as they always were."""
_LOW: Final = 16
"""Bits of a number that, where there are more shards, move it from one shard to another."""
_TAG_LENGTH: Final = 6
_PATTERN: Final = re.compile(
    rf"(run|conv|wh)_([{_ALPHABET}]{{2}})(?:([{_ALPHABET}]{{{_TAG_LENGTH}}})_)?([{_ALPHABET}]{{26}})"
)
_LETTERS: Final = 26
_OF_KIND: Final = f"_[{_ALPHABET}]{{2}}([{_ALPHABET}]{{{_TAG_LENGTH}}}_)?[{_ALPHABET}]{{26}}$"
CONVERSATION_ID: Final = f"^conv{_OF_KIND}"
"""The pattern of the id of a conversation, for documents."""
RUN_ID: Final = f"^run{_OF_KIND}"
"""The pattern of the id of a run."""
_TOOL_CALL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def new_tag() -> str:
    """A tag for a tenant, at random; whoever makes the tenant sees to it that no other one has it."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_TAG_LENGTH))


def new_run_id(shard: str, tag: str = "") -> str:
    """A fresh id of a run on ``shard`` (its two characters), of the tenant with this tag."""
    return f"run_{shard}{_marked(tag)}{_base32(secrets.randbits(130))}"


def new_webhook_id(tag: str = "") -> str:
    """A fresh id of a webhook of the tenant with this tag."""
    return f"wh_00{_marked(tag)}{_base32(secrets.randbits(130))}"


def file_webhook_id(name: str, tag: str = "") -> str:
    """The id of the webhook of that name in the operator's file, of the tenant with this tag."""
    number = int.from_bytes(hashlib.sha256(f"webhook {name}".encode()).digest()) >> (256 - 130)
    return f"wh_00{_marked(tag)}{_base32(number)}"


def derived_run_id(beside: str, seed: str) -> str:
    """The id of a run that follows from ``seed``, of the shard and the tenant of the id ``beside``."""
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()) >> (256 - 130)
    return f"run_{shard_of(beside)}{_marked(tenant_of(beside))}{_base32(number)}"


def derived_conversation_id(beside: str, seed: str, shards: int) -> str:
    """The same of a conversation, where there are ``shards`` many."""
    for number in count():
        digest = hashlib.sha256(f"{seed} {number}".encode()).digest()
        found = _moved(UUID(bytes=digest[:16]), shards, shard_of(beside))
        derived = conversation_id(found, shards, tenant_of(beside))
        if shard_of(derived) == shard_of(beside):
            break
    return derived


def new_conversation_id(shards: int, shard: str | None = None, tag: str = "") -> str:
    """A fresh id of a conversation on ``shard``, or on any of ``shards`` many, of the tenant with this tag."""
    while True:
        new_id = conversation_id(_moved(uuid4(), shards, shard), shards, tag)
        # Of at most 256, one is on the shard, and each costs a few microseconds. Of more, it is the first.
        if shard is None or shard_of(new_id) == shard:
            return new_id


def conversation_id(number: UUID, shards: int, tag: str = "") -> str:
    """The id of the conversation that others know by ``number``, where there are ``shards`` many, of the tenant with
    this tag: two tenants may have one of the same number."""
    return f"conv_{_shard_of_number(number, shards)}{_marked(tag)}{_base32(number.int)}"


def _shard_of_number(number: UUID, shards: int) -> str:
    if shards <= _OF_ONE_BYTE:
        return pick_shard(number.hex, shards)
    return all_shards(shards)[_place_of_number(number.int, shards)]


def _place_of_number(number: int, shards: int) -> int:
    high, low = number >> _LOW, number & ((1 << _LOW) - 1)
    return (int.from_bytes(hashlib.blake2s(high.to_bytes(14)).digest()[:2]) + low) % shards


def _moved(number: UUID, shards: int, shard: str | None) -> UUID:
    """A number that differs in its last bits and is of ``shard``, where there are so many shards that to try others
    would take milliseconds; else the number itself."""
    wanted = None if shard is None or shards <= _OF_ONE_BYTE else _places(shards).get(shard)
    if wanted is None:
        return number
    low = number.int & ((1 << _LOW) - 1)
    moved = low - (_place_of_number(number.int, shards) - wanted) % shards
    return UUID(int=number.int - low + (moved if moved >= 0 else moved + shards))


def _marked(tag: str) -> str:
    return f"{tag}_" if tag else ""


def tenant_of(any_id: str) -> str:
    """The tag of the tenant whose run or conversation an id names; empty for the default tenant. What it is of any
    other text has no meaning."""
    return any_id[-_LETTERS - 1 - _TAG_LENGTH : -_LETTERS - 1] if any_id[-_LETTERS - 1 : -_LETTERS] == "_" else ""


def of_tenant(any_id: str, tag: str) -> str:
    """The id that the same number on the same shard has with the tenant of this tag.

    Raises:
        ValueError: when it is no id of a run or a conversation.
    """
    match = _PATTERN.fullmatch(any_id)
    if match is None:
        raise ValueError(f"not an id: {any_id[:80]!r}")
    kind, shard, _, letters = match.groups()
    return f"{kind}_{shard}{_marked(tag)}{letters}"


def uuid_of(conversation_id: str) -> UUID:
    """The number of a conversation, whosever it is.

    Raises:
        ValueError: when it is no id of a conversation, or one with a larger number.
    """
    if not is_id("conv", conversation_id):
        raise ValueError(f"not an id of a conversation: {conversation_id[:80]!r}")
    number = 0
    for letter in conversation_id[-_LETTERS:]:
        number = number << 5 | _ALPHABET.index(letter)
    return UUID(int=number)


def _base32(number: int) -> str:
    """26 characters: 130 bits."""
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


def shard_of(any_id: str) -> str:
    """The two characters of shard that ``any_id`` carries.

    Raises:
        ValueError: when it is no id of a run or a conversation.
    """
    match = _PATTERN.fullmatch(any_id)
    if match is None:
        raise ValueError(f"not an id: {any_id[:80]!r}")
    return match.group(2)


def is_id(prefix: Literal["run", "conv", "wh"], text: str) -> bool:
    """Tell whether ``text`` is a well-formed id of that kind."""
    match = _PATTERN.fullmatch(text)
    return match is not None and match.group(1) == prefix


@cache
def all_shards(shards: int) -> tuple[str, ...]:
    """The first ``shards`` many, each as two characters: hexadecimal digits in the first 256, and one of the other
    letters in those behind them."""
    first = [f"{shard:02x}" for shard in range(_OF_ONE_BYTE)]
    behind = [pair for pair in map("".join, product(_ALPHABET, repeat=2)) if not {*pair} <= {*_ALPHABET[:16]}]
    return tuple((first + behind)[:shards])


@cache
def _places(shards: int) -> Mapping[str, int]:
    return {shard: place for place, shard in enumerate(all_shards(shards))}


def pick_shard(seed: str, shards: int) -> str:
    """The shard, of ``shards`` many, that ``seed`` always falls on."""
    digest = hashlib.blake2s(seed.encode()).digest()
    return all_shards(shards)[int.from_bytes(digest[: 1 if shards <= _OF_ONE_BYTE else 2]) % shards]


def safe_call_id(text: str) -> bool:
    """Tell whether a provider's tool call id can be part of a step's name (letters, digits, ``_``, ``-``; at most
    64)."""
    return _TOOL_CALL.fullmatch(text) is not None


def step_at(place: str) -> tuple[str, str, str]:
    """The ids of the conversation and the run of a step, and its name, from its place among those that wait for a
    provider, a service or a cap: ``<conversation>/<run>/<step>``."""
    conversation_id, run_id, step = place.split("/", 2)
    return conversation_id, run_id, step


def call_of(step: str) -> str | None:
    """The id of the tool call that the step of this name answers (``3/call_id``); None if it answers none (``3``)."""
    return step.partition("/")[2] or None
