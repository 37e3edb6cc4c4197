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
from functools import cache, lru_cache
from itertools import count, product
from typing import Final, Literal
from uuid import UUID, uuid4

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS: Final = tuple(map("".join, product(_ALPHABET, repeat=2)))
"""Each two of its characters: ten bits."""
MAX_SHARDS: Final = len(_ALPHABET) ** 2
"""Two characters."""
_OF_ONE_BYTE: Final = 256
"""Shards that one byte of a hash tells apart: where there are no more, ids are as they always were."""
_OF_TENANT: Final = 16
"""Shards that each tenant has, but for the default one, where there are more than those 256."""
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
TENANT_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
"""The name of a tenant, as a whole."""
_TOOL_CALL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def new_tag() -> str:
    """A tag for a tenant, at random; the caller sees to it that no other one has it."""
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
    digests = (hashlib.sha256(f"{seed} {number}".encode()).digest() for number in count())
    found = (_on_shard(UUID(bytes=digest[:16]), shards, shard_of(beside), tenant_of(beside)) for digest in digests)
    return next(filter(None, found))


def new_conversation_id(shards: int, shard: str | None = None, tag: str = "") -> str:
    """A fresh id of a conversation on ``shard``, or on any of ``shards`` many, of the tenant with this tag."""
    if shard is None:
        return conversation_id(uuid4(), shards, tag)
    # One of at most 256 is on the shard, and each costs a few microseconds.
    while (new_id := _on_shard(uuid4(), shards, shard, tag)) is None:
        pass
    return new_id


def conversation_id(number: UUID, shards: int, tag: str = "") -> str:
    """The id of the conversation that others know by ``number``, where there are ``shards`` many, of the tenant with
    this tag: two tenants may have one of the same number."""
    if shards <= _OF_ONE_BYTE:
        return _conversation_id(pick_shard(number.hex, shards), number.int, tag)
    own = shards_of_tenant(tag, shards)
    return _conversation_id(own[_place_of_number(number.int, len(own))], number.int, tag)


def _conversation_id(shard: str, number: int, tag: str) -> str:
    return f"conv_{shard}{_marked(tag)}{_base32(number)}"


def _on_shard(number: UUID, shards: int, shard: str, tag: str) -> str | None:
    """The id of the conversation of that number if it is on ``shard``. Where to try others would take milliseconds, it
    is one of a number that differs in its last bits.

    Where a tenant has none but older conversations on a shard, one beside these is not found by its number.
    """
    if shards <= _OF_ONE_BYTE:
        found = conversation_id(number, shards, tag)
        return found if shard_of(found) == shard else None
    own = shards_of_tenant(tag, shards)
    low, moved = number.int & ((1 << _LOW) - 1), 0
    if shard in own:
        moved = -((_place_of_number(number.int, len(own)) - own.index(shard)) % len(own))
    return _conversation_id(shard, number.int + (moved if low + moved >= 0 else moved + len(own)), tag)


def _place_of_number(number: int, places: int) -> int:
    high, low = number >> _LOW, number & ((1 << _LOW) - 1)
    return (int.from_bytes(hashlib.blake2s(high.to_bytes(14)).digest()[:2]) + low) % places


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
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(120, -1, -10)])


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


@lru_cache(maxsize=1024)
def shards_of_tenant(tag: str, shards: int) -> tuple[str, ...]:
    """The shards, of ``shards`` many, that new conversations of the tenant with this tag are spread over: all of them
    for the default tenant, and where there are at most 256; else a few, so that each has a part of a cap that is of
    use."""
    every, few = all_shards(shards), parts_of_tenant(shards)
    if not tag or few == shards:
        return every
    # More than enough of them: some are the same.
    drawn = hashlib.shake_128(tag.encode()).digest(8 * few)
    places = dict.fromkeys(int.from_bytes(drawn[i : i + 2]) % shards for i in range(0, len(drawn), 2))
    return tuple(every[place] for place in [*places][:few])


def parts_of_tenant(shards: int) -> int:
    """The number of these, of a tenant that has a tag: each has so much of its caps."""
    return shards if shards <= _OF_ONE_BYTE else _OF_TENANT


def pick_shard(seed: str, shards: int, tag: str = "") -> str:
    """The shard, of those that the tenant with this tag has, that ``seed`` always falls on."""
    own, digest = shards_of_tenant(tag, shards), hashlib.blake2s(seed.encode()).digest()
    return own[int.from_bytes(digest[: 1 if shards <= _OF_ONE_BYTE else 2]) % len(own)]


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
