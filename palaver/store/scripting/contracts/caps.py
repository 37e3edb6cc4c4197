"""Operations on what tenants may use by their caps."""

from __future__ import annotations

from palaver.late import dataclass
from palaver.store.redis.keys import Key, RunKeys
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.providers import Wait
from palaver.store.scripting.contracts.replies import Stale
from palaver.vocabulary.durations import Seconds


@dataclass(frozen=True, slots=True)
class Reserved:
    """The call may begin: what it may cost is reserved until its lease ends."""


class Reserve(Script[Reserved | Wait | Stale]):
    """Reserve what a call of a model may cost, or say until when the caps of the tenant allow none."""

    run: RunKeys
    step: str
    fence: int
    call: int
    """Its number among the calls of this attempt, from 1."""
    spent: int | None
    """The cost of those before it, nano-dollars; None if unknown."""
    least: int
    """The cost of what it is sent, as the next at most."""
    most: int
    """That and the cost of the longest answer."""
    tokens: int
    """Tokens that it may take, about."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Steps that wait for a cap, and may begin by now."""

    calls: tuple[str, ...]
    """Each by its conversation, its run and its name, with strokes between them."""


class FindAllowed(Script[Allowed]):
    """Look for steps that the caps of their tenants would let begin: a reservation has ended, a day is over, or a cap
    was changed."""

    held: Key
    meters: Key
    every: Seconds
    """If there was a look since so long ago, it finds nothing; 0: it looks in any case."""
    tenants: int
    """That are looked at, at most."""
    of_a_tenant: int
    """Its steps that are looked at, at most."""
