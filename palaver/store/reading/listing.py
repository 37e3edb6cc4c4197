"""Lists of runs: the runs that fit a filter, from the lists of each status, a page at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import Final

import orjson
from pydantic_core import to_json

from palaver.config.settings import Settings
from palaver.late import dataclass
from palaver.schemas.filters import RunFilter, admits, possible_statuses
from palaver.schemas.models import Run, RunCount
from palaver.store.reading import records
from palaver.store.reading.finding import ListPage, Place, Search, ShardLists, find
from palaver.store.reading.reading import Reading
from palaver.store.reading.recall import Memories
from palaver.store.redis import keys
from palaver.store.redis.capacity import Capacity
from palaver.store.redis.connection import Connection
from palaver.store.redis.visits import whole
from palaver.store.scripting.contracts.listing import FieldTest
from palaver.store.scripting.list_lengths import ANY, list_lengths
from palaver.store.scripting.scripts import Scripts
from palaver.vocabulary.ids import is_id, shard_of
from palaver.vocabulary.lifecycle import RunStatus
from palaver.vocabulary.limits import count_exceeded, limit_of

_CLOCK_STEP: Final = 60_000
"""ms by which Redis's clock may have been set back between a conversation and a run of it."""
_NEARLY_ONE: Final = timedelta(microseconds=999)
"""What makes the next millisecond of a time that is within one."""
_TOGETHER: Final = 25
"""Runs that are read at once."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:-]+")
"""Matches a text that every writer of JSON writes as it is."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """Runs, newest first, and where the next page starts."""

    runs: list[Run] = field(default_factory=list)
    next_cursor: str | None = None


class Listing(Reading):
    """Reads runs by what they have in common."""

    def __init__(
        self, redis: Connection, scripts: Scripts, settings: Settings, capacity: Capacity, memories: Memories
    ) -> None:
        super().__init__(redis, scripts, settings, capacity)
        self._memories = memories

    async def list(self, admitted: RunFilter, *, limit: int, cursor: str | None = None) -> RunPage:
        """A page of runs, newest first: few where they are long, or where many that do not fit lie between them.

        Raises:
            ValueError: the cursor is none of ours.
        """
        place = records.parse_cursor(cursor) if cursor else None
        if (parent := admitted.get("parent")) is not None:
            return await self._children(parent, admitted, limit, place)
        newest = admitted.get("created_before")
        if place is None and newest is not None:
            place = (records.millis(newest) + 1, "")
        page = await self._memories.beside(
            self._find(admitted, limit, place),
            lambda memory, until: memory.runs(admitted, limit=limit, place=place, until=until),
            limit=limit,
        )
        return RunPage(page.results, records.cursor(page.behind) if page.behind else None)

    async def _find(self, admitted: RunFilter, limit: int, place: Place | None) -> ListPage[Run]:
        search = await self._search(admitted)
        if search is None:
            return ListPage([], [], None)

        async def read(run_ids: Sequence[str]) -> dict[str, tuple[Run, int]]:
            return {run.id: (run, size) for run, size in await self.weighed(run_ids) if admits(admitted, run)}

        return await find(self._scripts, search, read, limit=limit, place=place)

    async def counts(self, after: datetime | None = None, before: datetime | None = None) -> RunCount:
        """Count the runs in each status; of those that were submitted between these times, if they are given."""
        oldest = f"({records.millis(after)}" if after else "-inf"
        newest = f"({records.millis(before + _NEARLY_ONE)}" if before else "+inf"
        lists = [(status, of) for status in RunStatus for of in keys.reached_owners()]
        there = await list_lengths(
            self._scripts,
            self.shards,
            [keys.runs(ANY, *each) for each in lists],
            (oldest, newest) if after or before else None,
        )
        counted = dict.fromkeys(RunStatus, 0)
        for _, parts in whole(self.shards, there):
            for (status, _), part in zip(lists, parts, strict=True):
                counted[status] += part.length
        count = await self._memories.run_counts(counted, after, before, most=limit_of("count_looked"))
        if not count.complete:
            count_exceeded("count_looked")
        return count

    async def _children(self, parent: str, admitted: RunFilter, limit: int, place: Place | None) -> RunPage:
        """Return a page of the runs that calls of ``parent`` began, from those that its record names. A place is how
        many of them come before one, and its id."""
        await self._memories.bring_back(parent)
        text = await self._redis.hget(keys.run(parent), "children") if is_id("run", parent) else None
        listed = [child["run_id"] for child in orjson.loads(text or b"[]")]
        ahead, runs, size = listed[: place[0] if place else None], list[Run](), 0
        while ahead:
            part = ahead[-_TOGETHER:]
            found = {run.id: (run, long) for run, long in await self.weighed(part)}
            for run in await self._memories.read_runs([each for each in part if each not in found]):
                found[run.id] = run, len(run.model_dump_json())
            there = {run_id: each for run_id, each in found.items() if admits(admitted, each[0])}
            while part:
                run_id = part.pop()
                ahead.pop()
                if run_id in there:
                    runs.append(there[run_id][0])
                    size += there[run_id][1]
                if size > limit_of("answer_bytes"):
                    count_exceeded("answer_bytes")
                if len(runs) == limit or size > limit_of("answer_bytes"):
                    return RunPage(runs, records.cursor((len(ahead), run_id)) if ahead else None)
        return RunPage(runs)

    async def _search(self, admitted: RunFilter) -> Search | None:
        """Return the search for a filter; None if no run can fit."""
        after, only = admitted.get("created_after"), admitted.get("conversation_id")
        shards, oldest = tuple(self.shards), None if after is None else records.millis(after)
        owners = keys.reached_owners()
        if only is not None:
            begun = await self._redis.hget(keys.conversation(only), "created_at") if is_id("conv", only) else None
            if begun is None:
                return None
            shards, oldest = (shard_of(only),), max(oldest or 0, int(begun) - _CLOCK_STEP)
            owners = keys.owners_of(only)[:1]
        possible = possible_statuses(admitted)
        if possible == ():
            return None
        lists = [
            ShardLists(
                shard,
                keys.run_prefix(shard),
                [keys.runs(shard, status, of) for of in owners for status in possible or (None,)],
            )
            for shard in shards
        ]
        return Search(lists, tuple(_tests(admitted)), last=oldest)


def _tests(filters: RunFilter) -> Iterator[FieldTest]:
    """Yield the tests that a run's hash allows without reading it whole. Each run that fits passes; a few others may.

    In JSON, a text is looked for as its writer writes it. Fields that may be long come last: they are read only of runs
    that pass the tests before.
    """
    if (conversation := filters.get("conversation_id")) is not None:
        yield FieldTest("conversation", "has", conversation)
    if (tag := filters.get("tag")) is not None:
        yield FieldTest("tags", "has", _written(tag))
    for name, value in (filters.get("metadata") or {}).items():
        yield FieldTest("metadata", "has", f"{_written(name)}:{_written(value)}")
    for name in ("submitted_by", "stop_reason"):
        if isinstance(text := filters.get(name), str):
            yield FieldTest(name, "has", text)
    for text in (filters.get("error_class"), filters.get("error_code")):
        # Of these, some are written by scripts, which escape more.
        if text is not None and _PLAIN.fullmatch(text):
            yield FieldTest("error", "has", f'"{text}"')
    if (retried := filters.get("retried")) is not None:
        yield FieldTest("retried_as", "set" if retried else "unset")
    if (after := filters.get("ended_after")) is not None:
        yield FieldTest("ended_at", "from", str(records.millis(after)))
    if (before := filters.get("ended_before")) is not None:
        yield FieldTest("ended_at", "to", str(records.millis(before)))
    if (agent := filters.get("agent")) is not None:
        # Without the end of the name: it may be one with a version.
        yield FieldTest("agent", "has", f'"name":{_in_agent(agent.partition("@")[0])}'[:-1])
    if (provider := filters.get("provider")) is not None:
        yield FieldTest("agent", "has", _in_agent(f"{provider}/")[:-1])
    for text in (filters.get("model"), filters.get("tool")):
        if text is not None:
            yield FieldTest("agent", "has", _in_agent(text))


def _written(text: str) -> str:
    """As it is in tags and metadata."""
    return orjson.dumps(text).decode()


def _in_agent(text: str) -> str:
    """As it is in an agent."""
    return to_json(text).decode()
