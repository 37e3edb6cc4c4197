"""Runs and conversations that come back from the archive.

A conversation comes back as it was: its hash, its log, its places in lists, and its latest runs; any other run when it
is asked for. The log goes into a key of its own first, a part at a time. Then a script puts the conversation there,
unless another process was faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property, partial
from secrets import token_hex
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary

from palaver.errors import ConfigurationError, CorruptRecord
from palaver.schemas.archive import ArchiveState
from palaver.schemas.conversation import Conversation, ConversationFilter, ConversationOrder
from palaver.schemas.filters import RunFilter, admits, possible_statuses
from palaver.schemas.models import Run, RunCount
from palaver.store.reading import records
from palaver.store.reading.finding import ListPage, Place
from palaver.store.reading.recall import RememberedCount, key_of
from palaver.store.redis import keys
from palaver.store.redis.connection import Fields, now_ms
from palaver.store.redis.reach import reach
from palaver.store.sides import Ground
from palaver.vocabulary.ids import is_id, shard_of
from palaver.vocabulary.lifecycle import RunStatus
from palaver.vocabulary.limits import limit_of

from . import archive_keys
from .backlog import DELETED, Backlog
from .contract import BringBack, BringRunBack, BroughtBack, ExpectLog, StaysAway, StoredField, TooLate
from .errors import SLOW, ArchiveAway
from .glance import ArchiveGlance
from .losses import end_lost
from .records import ArchivedRun, FoundRecord, goes_on
from .terms import READ

if TYPE_CHECKING:
    from .database import Database
    from .searching import Found

_ENTRIES: Final = 200
"""Entries of a log that are read and written at once, at most."""
_LATEST: Final = 20
"""Runs that come back with their conversation."""


_STAYS: Final = 3600
"""Seconds for which something is there again that is only read: to read all of an archive is not to fill the store."""
_PATIENCE: Final = 1.0
"""Seconds after which a page of a list ends where it is."""
_SEARCHES: Final = 2
"""Statements of lists of a process at once, of the four that it may have."""
_TOGETHER: Final = 25
"""Records that are read at once for a list: each may have some MB."""
_STATUSES: Final = frozenset(map(str, RunStatus))
T = TypeVar("T")
Find = Callable[[Place | None, int], Awaitable["Found"]]
"""Finds the next records behind a place, up to a number of them."""


class ArchiveMemory:
    """The memory that is an archive."""

    def __init__(self, ground: Ground, url: str) -> None:
        self._ground = ground
        self._url = url
        self._stays = min(int(ground.settings.retention), _STAYS)
        self._searching = asyncio.Semaphore(_SEARCHES)
        self._flights: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock for each conversation that comes back: many may ask for one at once."""
        self._glance = ArchiveGlance(Backlog(ground), lambda: self._database)

    async def state(self) -> ArchiveState:
        """As `palaver.store.reading.recall.Remembering.state`."""
        return await self._glance.read()

    async def prepare(self) -> None:
        """Load what speaks to the database, beside what this process does."""
        await asyncio.to_thread(lambda: self._database)

    @cached_property
    def _database(self) -> Database:
        from .database import Database

        return Database.of(self._url)

    async def recall(self, any_id: str) -> bool:
        """As `palaver.store.reading.recall.Remembering.recall`."""
        with _known_later():
            run_id = any_id if is_id("run", any_id) else None
            conversation_id = any_id if run_id is None else await self._database.conversation_of(run_id)
            if conversation_id is None:
                return False
            async with self._flights.setdefault(conversation_id, asyncio.Lock()):
                return await self._recall(conversation_id, run_id)

    async def runs(self, admitted: RunFilter, *, limit: int, place: Place | None, until: Place | None) -> ListPage[Run]:
        """As `palaver.store.reading.recall.Remembering.runs`."""
        possible = possible_statuses(admitted)
        if possible is not None and not any(RunStatus(status).terminal for status in possible):
            return ListPage([], [], None)

        def made(record: Fields) -> Run | None:
            run = records.run(record)
            return run if admits(admitted, run) else None

        return await self._page(partial(self._database.find_runs, admitted, _tenant(), until), made, limit, place)

    async def conversations(
        self,
        admitted: ConversationFilter,
        *,
        limit: int,
        place: Place | None,
        until: Place | None,
        order: ConversationOrder,
    ) -> ListPage[Conversation]:
        """As `palaver.store.reading.recall.Remembering.conversations`."""
        if _goes_on(admitted):
            return ListPage([], [], None)
        find = partial(self._database.find_conversations, admitted, _tenant(), order, until)
        return await self._page(find, lambda record: records.conversation(record, {}), limit, place)

    async def run_counts(self, after: datetime | None, before: datetime | None, *, most: int) -> RunCount:
        """As `palaver.store.reading.recall.Remembering.run_counts`."""
        with _known_later():
            counts, complete = await self._database.run_counts(_tenant(), after, before, most)
        known = {RunStatus(status): count for status, count in counts.items() if status in _STATUSES}
        return RunCount(statuses=known, complete=complete)

    async def conversation_count(self, admitted: ConversationFilter, *, most: int) -> RememberedCount | None:
        """As `palaver.store.reading.recall.Remembering.conversation_count`."""
        if _goes_on(admitted):
            return None
        with _known_later():
            return RememberedCount(*await self._database.count_conversations(admitted, _tenant(), most), "in_archive")

    async def _page(
        self, find: Find, made: Callable[[Fields], T | None], limit: int, place: Place | None
    ) -> ListPage[T]:
        """Return a page of what the store does not have: few where they are long, or where many lie between them that
        do not fit or that it has."""
        page, looked, size = ListPage[T]([], [], place), 0, 0
        clock = asyncio.get_running_loop().time
        end = clock() + _PATIENCE
        while True:
            # Others read single things meanwhile, over the connections that are left.
            async with self._searching:
                with _known_later():
                    found = await find(page.behind, _TOGETHER)
            for each in await self._away(found.records):
                record = _hash(each)
                try:
                    one = made(record)
                except CorruptRecord:
                    continue
                if one is not None:
                    page.results.append(one)
                    page.places.append(each.place)
                    size += sum(map(len, record.values()))
                if len(page.results) == limit or size > limit_of("answer_bytes"):
                    return page._replace(behind=each.place)
            page = page._replace(behind=found.end)
            looked += len(found.records) if len(found.records) == _TOGETHER else limit_of("list_looked")
            if found.end is None or clock() > end or looked >= limit_of("list_looked"):
                return page

    async def _away(self, found: Sequence[FoundRecord]) -> Sequence[FoundRecord]:
        """Return those of these that the store neither has nor has deleted. What has come back and is as it was is one
        of them: it may have come behind the look at the store."""
        pipeline = self._ground.redis.pipeline(transaction=False)
        for each in found:
            pipeline.hmget(key_of(each.id), ("id", "recalled", "unfinished"))
        there = await pipeline.execute() if found else ()
        away = {each.id for each, fields in zip(found, there, strict=True) if _is_away(*fields)}
        of = {each.id: {each.id, each.fields.get("conversation", each.id)} for each in found if each.id in away}
        deleted = await self._deleted({any_id for ids in of.values() for any_id in ids})

        def goes(each: FoundRecord) -> bool:
            # What began behind a deletion is of another conversation of that id.
            began = int(each.fields.get("created_at", 0))
            return any(deleted.get(any_id, -1.0) >= began for any_id in of[each.id])

        return [each for each in found if each.id in of and not goes(each)]

    async def _deleted(self, ids: Collection[str]) -> dict[str, float]:
        """Return those of these that the archive is to forget, or has forgotten just now, and when (ms)."""
        pipeline, deleted = self._ground.redis.pipeline(transaction=False), dict[str, float]()
        for each in ids:
            pipeline.execute_command("ZSCORE", archive_keys.unarchived(shard_of(each)), DELETED + each)
            pipeline.execute_command("ZSCORE", archive_keys.forgotten(shard_of(each)), each)
        marks = iter(await pipeline.execute() if ids else ())
        for each, marked in zip(ids, zip(marks, marks, strict=True), strict=True):
            if times := [float(mark) for mark in marked if mark is not None]:
                deleted[each] = max(times)
        return deleted

    async def read_runs(self, ids: Sequence[str]) -> Sequence[Run]:
        """As `palaver.store.reading.recall.Remembering.read_runs`."""
        with _known_later():
            found = await self._database.runs(ids)
        runs = list[Run]()
        for each in await self._away([FoundRecord(run.id, (0, run.id), run.fields) for run in found]):
            with suppress(CorruptRecord):
                runs.append(records.run(_hash(each)))
        return runs

    async def _recall(self, conversation_id: str, run_id: str | None) -> bool:
        if run_id is None and await self._database.record(conversation_id) is None:
            return False
        # What is read from here on may be deleted before it is put back, but not for longer.
        too_late = await now_ms(self._ground.redis) + READ * 1000
        runs = [] if run_id is None else [await self._database.run(run_id)]
        if not await self._ground.redis.exists(keys.conversation(conversation_id)):
            fields = await self._database.record(conversation_id)
            if fields is None:
                return False
            if goes_on(fields):
                await end_lost(self._database, conversation_id, await now_ms(self._ground.redis))
                return await self._recall(conversation_id, run_id)
            await self._ground.capacity.admit()
            if not await self._bring(conversation_id, fields, too_late):
                return False
            runs += await self._database.latest_runs(conversation_id, _LATEST)
        # One that has not ended is lost, with what its conversation had since.
        ended = [run for run in runs if run is not None and "ended_at" in run.fields]
        there = [await self._bring_run(conversation_id, run, too_late) for run in ended]
        return run_id is None or any(there)

    async def _bring(self, conversation_id: str, fields: Mapping[str, str], too_late: int) -> bool:
        shard = shard_of(conversation_id)
        copied, position = keys.copied(shard, token_hex(8)), 0
        conversation, log = keys.conversation(conversation_id), keys.log(conversation_id)
        await self._ground.scripts.run(ExpectLog(conversation=conversation, log=log, copied=copied, lasts=READ))
        while entries := await self._database.entries(conversation_id, position, _ENTRIES):
            pipeline = self._ground.redis.pipeline(transaction=False)
            for entry in entries:
                words = (word for field in entry.fields.items() for word in field)
                pipeline.execute_command("XADD", copied, f"{entry.position}-0", *words)
            pipeline.expire(copied, READ)
            await pipeline.execute()
            position = entries[-1].position
        return _is_back(
            await self._ground.scripts.run(
                BringBack(
                    conversation=conversation,
                    log=log,
                    copied=copied,
                    position=position,
                    created_at=int(fields["created_at"]),
                    too_late=too_late,
                    stays=self._stays,
                    stored_fields=tuple(StoredField(name, value) for name, value in fields.items()),
                )
            )
        )

    async def _bring_run(self, conversation_id: str, run: ArchivedRun, too_late: int) -> bool:
        return _is_back(
            await self._ground.scripts.run(
                BringRunBack(
                    conversation=keys.conversation(conversation_id),
                    log=keys.log(conversation_id),
                    run=keys.run(run.id),
                    run_id=run.id,
                    created_at=int(run.fields["created_at"]),
                    too_late=too_late,
                    stays=self._stays,
                    stored_fields=tuple(StoredField(name, value) for name, value in run.fields.items()),
                )
            )
        )

    async def close(self) -> None:
        """Give the connections back."""
        await self._glance.close()
        if "_database" in vars(self):
            await self._database.close()


def _is_back(reply: BroughtBack | StaysAway | TooLate) -> bool:
    if isinstance(reply, TooLate):
        raise ArchiveAway(SLOW)
    return isinstance(reply, BroughtBack)


@contextmanager
def _known_later() -> Iterator[None]:
    """An archive that this version cannot read is away for now."""
    try:
        yield
    except ConfigurationError as error:
        raise ArchiveAway(str(error)) from None


def _is_away(there: bytes | None, recalled: bytes | None, unfinished: bytes | None) -> bool:
    """Tell by these fields of a hash whether the store does not have it, or has it as the archive does."""
    return there is None or (recalled is not None and not int(unfinished or 0))


def _hash(found: FoundRecord) -> Fields:
    """Return the hash of a record, as Redis would have it if it came back."""
    fields = {name.encode(): value.encode(errors="replace") for name, value in found.fields.items()}
    return {**fields, b"recalled": b"1"}


def _goes_on(admitted: ConversationFilter) -> bool:
    """Tell whether only conversations fit that go on."""
    if (status := admitted.get("status")) is None:
        return False
    named = status.split(",") if isinstance(status, str) else status
    return all(each in _STATUSES and not RunStatus(each).terminal for each in named)


def _tenant() -> str | None:
    """Return the tag of the tenant within reach; None if all are."""
    tenant, all_tenants = reach()
    return None if all_tenants else tenant
