"""Recall: what the store does not have any more comes back from a feature that remembers it.

The methods of a part of the store raise `UnknownRecord` for an id that nothing has. Where a feature remembers things,
they are called through `recalling`: then that id is asked for, and the method is called once more. What is there costs
nothing but the call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from palaver.errors import UnknownRecord
from palaver.feature import features
from palaver.schemas.models import Run, RunCount
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection
from palaver.store.redis.reach import is_reached
from palaver.store.sides import Ground
from palaver.vocabulary.ids import is_id

if TYPE_CHECKING:
    from datetime import datetime

    from palaver.schemas.archive import ArchiveState
    from palaver.schemas.conversation import Conversation, ConversationFilter, ConversationOrder
    from palaver.schemas.filters import RunFilter
    from palaver.store.reading.finding import ListPage, Place
    from palaver.vocabulary.lifecycle import RunStatus

T = TypeVar("T")
Recall = Callable[[str], Awaitable[bool]]
"""Brings back what has an id, and tells whether it is there now."""


class RememberedCount(NamedTuple):
    """A number of conversations that a memory has."""

    conversations: int
    complete: bool
    """All that it has were looked at."""
    mark: str
    """The field of the hash of those of them that the store has, too."""


class Remembering(Protocol):
    """Has runs and conversations that the store does not have any more. All of its methods raise StoreUnavailable where
    what remembers them does not answer."""

    async def recall(self, any_id: str) -> bool:
        """Bring back a run that has ended, with its conversation, or a conversation; tell whether it is there now.

        Raises:
            NoRoom: ``store_nearly_full``.
        """

    async def runs(self, admitted: RunFilter, *, limit: int, place: Place | None, until: Place | None) -> ListPage[Run]:
        """Return a page of the runs within reach that fit and that the store does not have, newest first: those behind
        ``place``, and not beyond ``until``."""

    async def conversations(
        self,
        admitted: ConversationFilter,
        *,
        limit: int,
        place: Place | None,
        until: Place | None,
        order: ConversationOrder,
    ) -> ListPage[Conversation]:
        """Return a page of the conversations within reach that fit and that the store does not have, in that order:
        those behind ``place``, and not beyond ``until``."""

    async def run_counts(self, after: datetime | None, before: datetime | None, *, most: int) -> RunCount:
        """Return the number of runs within reach in each status that were created between these times, of the ``most``
        newest, be they in the store, too, or not."""

    async def conversation_count(self, admitted: ConversationFilter, *, most: int) -> RememberedCount | None:
        """Return the number of conversations within reach that fit, of the ``most`` newest, be they in the store, too,
        or not; None if what it remembers cannot fit."""

    async def read_runs(self, ids: Sequence[str]) -> Sequence[Run]:
        """Return those of these runs that it has and the store does not. They do not come back."""

    async def state(self) -> ArchiveState:
        """Return how it stands with what remembers them. Raises what the store raises, and not StoreUnavailable for a
        memory that is away: it says so."""

    async def prepare(self) -> None:
        """Load what the first recall needs."""

    async def close(self) -> None:
        """Give back what it holds."""


class Memories:
    """The memory that a feature has beside a store, if there is one: an installation has one such feature at most."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        made = (each.load(each.recall)(ground) for each in features().values() if each.recall and each.on)
        self._memory: Remembering | None = next((memory for memory in made if memory is not None), None)

    async def bring_back(self, *ids: str) -> None:
        """See to it that runs and conversations are there, as far as there were ever any of these ids. Raises as
        `Remembering.recall`."""
        if self._memory is not None:
            known = [each for each in ids if is_id("run", each) or is_id("conv", each)]
            for each in await absent(self._ground.redis, known):
                await self._recall(each)

    async def read_runs(self, ids: Sequence[str]) -> Sequence[Run]:
        """As `Remembering.read_runs`; none if nothing remembers any."""
        return () if self._memory is None or not ids else await self._memory.read_runs(ids)

    async def beside(
        self,
        page: Awaitable[ListPage[T]],
        ask: Callable[[Remembering, Place | None], Awaitable[ListPage[T]]],
        *,
        limit: int,
        ascending: bool = False,
    ) -> ListPage[T]:
        """Return a page of the store, with what is remembered in its place. ``ask`` is given where the page ends:
        beyond that, what is remembered is of another page."""
        found = await page
        if self._memory is None:
            return found
        from palaver.store.reading.finding import merged

        return merged([found, await ask(self._memory, found.behind)], limit=limit, ascending=ascending)

    async def run_counts(
        self, there: Mapping[RunStatus, int], after: datetime | None, before: datetime | None, *, most: int
    ) -> RunCount:
        """Return counts of the store, or of what is remembered where these are larger: of what has ended it has all but
        the latest. Of that no more than the ``most`` newest are counted."""
        if self._memory is None:
            return RunCount(statuses={**there})
        remembered = await self._memory.run_counts(after, before, most=most)
        larger = {status: max(count, remembered.statuses.get(status, 0)) for status, count in there.items()}
        return RunCount(statuses=larger, complete=remembered.complete)

    async def conversation_count(self, admitted: ConversationFilter, *, most: int) -> RememberedCount | None:
        """As `Remembering.conversation_count`."""
        return None if self._memory is None else await self._memory.conversation_count(admitted, most=most)

    async def state(self) -> ArchiveState | None:
        """As `Remembering.state`; None if nothing remembers any."""
        return None if self._memory is None else await self._memory.state()

    def recalling(self, part: T) -> T:
        """Return the part of a store, with methods that ask once for what is not there."""
        return part if self._memory is None else cast(T, _Recalling(part, self._recall))

    async def prepare(self) -> None:
        """Load what the first recall needs."""
        if self._memory is not None:
            await self._memory.prepare()

    async def close(self) -> None:
        """Close it."""
        if self._memory is not None:
            await self._memory.close()

    async def _recall(self, any_id: str) -> bool:
        # Beyond the reach of a caller there is nothing, there and here.
        known = (is_id("run", any_id) or is_id("conv", any_id)) and is_reached(any_id)
        return known and self._memory is not None and await self._memory.recall(any_id)


def key_of(any_id: str) -> str:
    """Return the key of a run or a conversation."""
    return keys.run(any_id) if is_id("run", any_id) else keys.conversation(any_id)


async def absent(redis: Connection, ids: Sequence[str]) -> Sequence[str]:
    """Return those of these runs and conversations that the store does not have."""
    pipeline = redis.pipeline(transaction=False)
    for each in ids:
        pipeline.execute_command("EXISTS", key_of(each))
    return [each for each, there in zip(ids, await pipeline.execute(), strict=True) if not there]


class _Recalling:
    """A part of a store, with its methods."""

    def __init__(self, part: Any, recall: Recall) -> None:
        self._part = part
        self._recall = recall

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if iscoroutinefunction(found):
            found = _again(found, self._recall)
        elif isasyncgenfunction(found):
            found = _from_the_start(found, self._recall)
        else:
            return found
        setattr(self, name, found)
        return found


def _again(method: Callable[..., Awaitable[Any]], recall: Recall) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def call(*values: Any, **named: Any) -> Any:
        try:
            return await method(*values, **named)
        except UnknownRecord as unknown:
            if not await recall(unknown.unknown):
                raise
        return await method(*values, **named)

    return call


def _from_the_start(
    method: Callable[..., AsyncGenerator[Any, None]], recall: Recall
) -> Callable[..., AsyncGenerator[Any, None]]:
    @wraps(method)
    async def call(*values: Any, **named: Any) -> AsyncGenerator[Any, None]:
        begun = False
        try:
            async with aclosing(method(*values, **named)) as found:
                async for each in found:
                    begun = True
                    yield each
                return
        except UnknownRecord as unknown:
            if begun or not await recall(unknown.unknown):
                raise
        async with aclosing(method(*values, **named)) as found:
            async for each in found:
                yield each

    return call
