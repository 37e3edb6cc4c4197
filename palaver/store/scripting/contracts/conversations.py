"""Requests of clients about conversations, besides their runs."""

from __future__ import annotations

from typing import NamedTuple

from palaver.late import dataclass
from palaver.store.redis.keys import Key
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.replies import Busy, Unknown
from palaver.store.scripting.contracts.runs import Rejected
from palaver.store.scripting.contracts.secrets import NewSecret, Overfull
from palaver.store.scripting.contracts.wire import Json


class HashField(NamedTuple):
    """A field of a conversation's hash, as it is to be."""

    name: str
    value: str | None
    """None takes it away."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The conversation is there."""

    there: bool
    """True if it existed before."""


class BeginConversation(Script[Begun | Busy | Rejected]):
    """Begin a conversation without a run, if there is none of that id. One that is being deleted is busy."""

    grows = True

    conversation: Key
    log: Key
    hash_fields: tuple[HashField, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """It is as was asked."""


@dataclass(frozen=True, slots=True)
class Revised:
    """It has another revision: another client has changed it."""


class ChangeConversation(Script[Changed | Overfull | Revised | Unknown]):
    """Change the fields of a conversation."""

    grows = True

    conversation: Key
    log: Key
    revision: int | None
    """Only if it has this one."""
    endpoint: str | None
    """The name under which the key of its new agent is stored, as of `endpoint_of`; None if the agent stays."""
    agent_by: Json | None
    """The names of those who wrote its new agent, a list; None if the agent stays, or has none."""
    hash_fields: tuple[HashField, ...]
    secrets: tuple[NewSecret, ...]


@dataclass(frozen=True, slots=True)
class Forgotten:
    """So many are in no list any more."""

    count: int


class ForgetConversations(Script[Forgotten]):
    """Take conversations that have expired out of the lists of their shard."""

    when_full = True

    expiring: Key
    """The list of those that expire."""
    limit: int
