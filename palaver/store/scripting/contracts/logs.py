"""Operations on the logs of conversations: read, copy, delete. Long logs take a part at a time."""

from __future__ import annotations

from typing import Final, Literal

from palaver.late import dataclass
from palaver.store.redis.keys import Key, RunKeys
from palaver.store.scripting.contracts.conversations import HashField
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.replies import Active, Busy, Mismatch, More, Unknown
from palaver.store.scripting.contracts.runs import Rejected
from palaver.store.scripting.contracts.wire import Entries, Json

ENTRY_FIELDS: Final = ("type", "at", "run", "seq", "data", "opaque")
"""The fields of each entry of a log, in this order; the last is there if it has a value. Python reads them by name, Lua
by their places: ``LogEntry.DATA``."""


@dataclass(frozen=True, slots=True)
class LogPage:
    """Entries of a log."""

    entries: Entries
    ends: bool
    """The log ends with them."""
    withdrawals: bytes
    """Another value whenever something of the log is withdrawn."""
    withdrawn: bytes | None
    """The withdrawn parts of the log, JSON."""


class ReadLog(Script[LogPage | Unknown]):
    """A page of a conversation's log."""

    conversation: Key
    log: Key
    after: int
    """The position behind which it begins; 0 for the end that it begins with."""
    newest_first: bool = False


@dataclass(frozen=True, slots=True)
class Appended:
    """The messages are taken, now or, with ``replayed``, by an earlier request with the same key."""

    run_id: str | None
    """The run that was active: they went into it, or wait until it is cancelled."""
    position: int | None
    """The position of the last message in the log, if no run was active."""
    replayed: bool


class Append(Script[Appended | Mismatch | Rejected | Unknown]):
    """Add messages to a conversation without a run: to its log, or words of the user's into the run that is active."""

    grows = True

    run: RunKeys
    """The keys of no run: those of the conversation and of its shard are among them."""
    idempotency: Key
    """The record of the idempotency key."""
    fingerprint: str | None
    """None if the idempotency key is not the client's."""
    request: str
    """Names this very request."""
    title: str | None
    folded: str | None
    """The folded title, as in `Submit`."""
    by: str | None
    """The name of the key that asks."""
    turns: bool
    """True if there are others than the user's among them: whole turns, which no run that is active takes in."""
    messages: tuple[Json, ...]


Misplaced = Literal["beyond", "withdrawn", "open_turn", "far"]
"""Why a log cannot be cut behind a position: it does not go so far, models do not see it, a call is open there, or no
message is near to see that by."""


@dataclass(frozen=True, slots=True)
class NoPlace:
    """The log cannot be cut there."""

    why: Misplaced


@dataclass(frozen=True, slots=True)
class Place:
    """The log can be cut behind this position: turns stay whole."""

    position: int


class FindPlace(Script[Place | NoPlace | Unknown]):
    """Find a place where a log can be cut."""

    conversation: Key
    log: Key
    position: int | None
    """There; None for the end, or before the turn that is open there."""


@dataclass(frozen=True, slots=True)
class WithdrawnBehind:
    """Models see nothing behind the position, now or, with ``replayed``, by an earlier request with the same key."""

    replayed: bool


class WithdrawAfter(Script[WithdrawnBehind | NoPlace | Mismatch | Rejected | Unknown]):
    """Withdraw everything behind a position of a log, of whichever run it is, while none is active."""

    run: RunKeys
    """The keys of no run, as in `Append`."""
    idempotency: Key
    """The record of the idempotency key."""
    fingerprint: str | None
    request: str
    """The id of the request, as in `Append`; the fingerprint, too."""
    position: int


@dataclass(frozen=True, slots=True)
class Copied:
    """A part is copied."""

    ends: bool
    """True if it was the last part."""
    withdrawals: bytes
    """The withdrawals, as in `LogPage`."""
    withdrawn: bytes | None


class CopyLog(Script[Copied | Unknown]):
    """Copy a part of a conversation's log, for another one to begin with. A copy that none begins with is forgotten."""

    conversation: Key
    log: Key
    copy: Key
    """The progress of the copy, and its bytes."""
    copied: Key
    """Its entries."""
    through: int
    """Position up to which."""


@dataclass(frozen=True, slots=True)
class Forked:
    """The copy is a conversation, or an earlier request with the same key, or for the same id, made one."""

    conversation_id: str
    replayed: bool


@dataclass(frozen=True, slots=True)
class ToCopy:
    """There is no such fork yet: copy the log for it."""


class Fork(Script[Forked | ToCopy | Busy | Mismatch | Rejected]):
    """Make a conversation of a copied log, or find the one that there is already."""

    conversation: Key
    log: Key
    source: Key
    """The conversation that it is a copy of."""
    idempotency: Key
    """The record of the idempotency key."""
    fingerprint: str | None
    request: str
    """The id of the request, as in `Append`; the fingerprint, too."""
    forked_from: str
    """The id of that conversation."""
    copy: str | None
    """The name of the copy; None if there is none yet."""
    through: int
    """Position up to which it goes."""
    withdrawals: bytes
    """The withdrawals of the source before it was copied, as of `LogPage`."""
    withdrawn: Json | None
    """The withdrawn parts of the copy."""
    by: str | None
    """The name of the key that asks."""
    seen_agent: str | None
    """The source's agent, which the fork is to have, as in `Submit`; None if it has one of its own."""
    hash_fields: tuple[HashField, ...]


@dataclass(frozen=True, slots=True)
class Deleted:
    """All of it is gone."""


class DeleteRun(Script[More | Deleted | Active | Unknown]):
    """Delete a run that has ended: its record, its feed, and what it put into the conversation's log. From the first
    part on no user and no model sees it; if the deletion does not go on, the rest goes when its retention is over."""

    when_full = True

    run: RunKeys


class DeleteConversation(Script[More | Deleted | Busy | Unknown]):
    """Delete a conversation with its runs, once all of them have ended. From the first part on it is unknown to
    everybody; if the deletion does not go on, the rest goes when its retention is over."""

    when_full = True

    conversation: Key
    log: Key
