"""Operations on batches."""

from __future__ import annotations

from typing import Final, NamedTuple

from palaver.late import dataclass
from palaver.schemas.batches import BatchState
from palaver.store.redis.keys import Key
from palaver.store.scripting.contracts.agents import Absent, Removed, TenantErased, TooMany
from palaver.store.scripting.contracts.claims import StaleClaim, TickBusy
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.replies import Mismatch
from palaver.store.scripting.contracts.wire import Json
from palaver.vocabulary.durations import Seconds

from .batch_keys import BatchKeys
from .bodies import BatchVerb


@dataclass(frozen=True, slots=True)
class BatchMade:
    """It is there."""

    new: bool


class CreateBatch(Script[BatchMade | Mismatch | TooMany | TenantErased]):
    """Make a batch without items, unless it is there."""

    grows = True

    of: BatchKeys
    erasure: Key
    member: str
    batch_id: str
    order: Json
    made: Json
    """The key that asks, and the time."""


@dataclass(frozen=True, slots=True)
class ItemsAppended:
    """They are there."""

    items: int
    """All that there are."""


@dataclass(frozen=True, slots=True)
class OffsetWrong:
    """They do not go on where the others end, or no more are to come."""

    items: int


class AppendItems(Script[ItemsAppended | OffsetWrong | TooMany | Absent]):
    """Append items to a batch that is open."""

    grows = True

    of: BatchKeys
    member: str
    offset: int
    complete: bool
    most: int
    """Items that there may be."""
    by: Json | None
    """The bearer of the key that adds them; None if it is that of the batch."""
    items: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class BatchClaimed:
    """It is for this process to go on with."""

    order: Json
    state: BatchState
    items: int
    next: int
    """The first cell that was never begun."""
    retried_by: Json | None
    """The names of those who began again what had failed."""


class ClaimBatch(Script[BatchClaimed | TickBusy | Absent]):
    """Claim a batch for some time."""

    of: BatchKeys
    member: str
    claim: str


class BegunCell(NamedTuple):
    """A cell that is in flight."""

    cell: int
    entry: Json
    """Its attempt, its run once that is known, and more."""


class EndedCell(NamedTuple):
    """A cell that has ended."""

    cell: int
    result: Json
    agent: int
    status: str
    failed: bool
    """A retry of the batch begins it again."""
    nanos: int | None
    """Its cost, in a billionth of a dollar; None if it is unknown."""
    input_tokens: int
    output_tokens: int
    ms: int
    passed: int | None
    """1 or 0, as its verdict says; None without one."""


@dataclass(frozen=True, slots=True)
class BatchAdvanced:
    """It is written."""


class AdvanceBatch(Script[BatchAdvanced | StaleClaim]):
    """Write which cells are begun and which have ended; and let the claim go, if there is nothing more to do now."""

    when_full = True

    of: BatchKeys
    told: Key
    member: str
    claim: str
    next: int
    width: int
    """Cells of an item."""
    wait: Seconds | None
    """Seconds after which it is to be looked at again; None: the claim goes on."""
    begun: tuple[BegunCell, ...]
    ended: tuple[EndedCell, ...]


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """It has ended: it cannot be read."""


class LeaveBatch(Script[BatchAdvanced | BatchFailed | StaleClaim]):
    """Let the claim of a batch go that this process cannot read. Where none could for long, or it is to be cancelled,
    it ends."""

    when_full = True

    of: BatchKeys
    told: Key
    member: str
    claim: str


@dataclass(frozen=True, slots=True)
class BatchChanged:
    """It is done, as far as this call came."""

    moved: int
    """Cells that are begun again."""
    more: bool


class ChangeBatch(Script[BatchChanged | Absent]):
    """Cancel a batch, or begin again what has failed: a part of it in each call."""

    when_full = True

    of: BatchKeys
    member: str
    verb: BatchVerb
    by: Json
    """The name of the key that asks, in a list; '' for none."""


class RemoveBatch(Script[Removed | TickBusy | Absent]):
    """Forget a batch that has ended. Its runs stay."""

    when_full = True

    of: BatchKeys
    batch_id: str


SCRIPTS: Final = (
    CreateBatch,
    AppendItems,
    ClaimBatch,
    AdvanceBatch,
    LeaveBatch,
    ChangeBatch,
    RemoveBatch,
)
