"""Lists of runs: what a filter asks for, found in the lists of each status, a page at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson
from pydantic_core import to_json

from palaver.filters import RunFilter, admits, possible_statuses
from palaver.ids import is_id, shard_of
from palaver.limits import beyond, most
from palaver.models import Run
from palaver.store import keys, records
from palaver.store.contracts import FindRuns
from palaver.store.contracts.listing import RunIndex, RunTest
from palaver.store.reading import Reading

_AT_ONCE: Final = 1_000
"""Runs that one script looks at: 3 to 8 ms of Redis."""
_TOGETHER: Final = 25
"""Runs that are read at once: each may have some MB."""
_CLOCK_STEP: Final = 60_000
"""ms by which Redis's clock may have been set back between a conversation and a run of it."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:-]+")
"""What every writer of JSON writes as it is."""

_Place = tuple[int, str]
"""When a run was created (ms), and its id."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """Runs, newest first, and where the next page starts."""

    runs: list[Run] = field(default_factory=list)
    next_cursor: str | None = None


class _Search(NamedTuple):
    """Where to look, and for what."""

    shards: Sequence[str]
    statuses: Sequence[str | None]
    oldest: int | None
    tests: tuple[RunTest, ...]


class _Slice(NamedTuple):
    """A part of the lists that was looked through."""

    places: Sequence[_Place]
    """Of runs that passed the tests, newest first."""
    looked: int
    bytes: int
    """Read by that."""
    end: _Place | None
    """Where to go on; None if the lists end."""


class Listing(Reading):
    """Reads runs by what they have in common."""

    async def list(self, admitted: RunFilter, *, limit: int, cursor: str | None = None) -> RunPage:
        """A page of runs, newest first: few where they are long, or where many that do not fit lie between them.

        Raises:
            ValueError: the cursor is none of ours.
        """
        place = records.parse_cursor(cursor) if cursor else None
        newest = admitted.get("created_before")
        if place is None and newest is not None:
            place = (records.millis(newest) + 1, "")
        page, looked, looked_bytes, size = RunPage(runs=[]), 0, 0, 0
        search = await self._search(admitted)
        while search is not None:
            found = await self._look(search, place, limit - len(page.runs))
            looked, looked_bytes = looked + found.looked, looked_bytes + found.bytes
            for some in _parts(found.places):
                read = {run.id: (run, long) for run, long in await self.weighed([run_id for _, run_id in some])}
                for place in some:
                    run, long = read.get(place[1], (None, 0))
                    if run is not None and admits(admitted, run):
                        page.runs.append(run)
                        size += long
                        if size > most("answer_bytes"):
                            beyond("answer_bytes")
                            return RunPage(page.runs, records.cursor(place))
            if len(page.runs) == limit and found.places:
                return RunPage(page.runs, records.cursor(found.places[-1]))
            if found.end is None:
                break
            place = found.end
            for limited, much in (("list_looked", looked), ("list_bytes", looked_bytes)):
                if much >= most(limited):
                    beyond(limited)
                    return RunPage(page.runs, records.cursor(place))
        return page

    async def _search(self, admitted: RunFilter) -> _Search | None:
        """What a filter asks for; None if no run can fit."""
        after, only = admitted.get("created_after"), admitted.get("conversation_id")
        shards, oldest = tuple(self._shards), None if after is None else records.millis(after)
        if only is not None:
            begun = await self._redis.hget(keys.conversation(only), "created_at") if is_id("conv", only) else None
            if begun is None:
                return None
            shards, oldest = (shard_of(only),), max(oldest or 0, int(begun) - _CLOCK_STEP)
        possible = possible_statuses(admitted)
        return None if possible == () else _Search(shards, possible or (None,), oldest, tuple(_tests(admitted)))

    async def _look(self, search: _Search, place: _Place | None, wanted: int) -> _Slice:
        """The next part of the lists behind ``place``, with ``wanted`` runs that passed the tests at most."""
        replies = await self._scripts.run_all(
            FindRuns(
                prefix=keys.prefix(shard),
                before=place and place[0],
                before_id=place and place[1],
                oldest=search.oldest,
                most_looked=_AT_ONCE,
                most_found=wanted,
                lists=tuple(RunIndex(keys.runs(shard, status)) for status in search.statuses),
                tests=search.tests,
            )
            for shard in search.shards
        )
        ends = [(each.last_at or 0, each.last_id or "") for each in replies if not each.ends]
        places = sorted(((run.created_at, run.id) for each in replies for run in each.runs), reverse=True)
        end = max(ends, default=None)
        seen = [each for each in places if end is None or each >= end]
        if len(seen) > wanted:
            seen = seen[:wanted]
            end = seen[-1]
        return _Slice(seen, sum(each.looked for each in replies), sum(each.bytes for each in replies), end)


def _tests(wanted: RunFilter) -> Iterator[RunTest]:
    """What can be told of a run from its hash without reading it whole. Each run that fits passes; a few others may.

    Of JSON, a text is looked for as its writer writes it. What may be long comes last: it is read only of runs that
    pass the tests before.
    """
    if (conversation := wanted.get("conversation_id")) is not None:
        yield RunTest("conversation", "has", conversation)
    if (tag := wanted.get("tag")) is not None:
        yield RunTest("tags", "has", _written(tag))
    for name, value in (wanted.get("metadata") or {}).items():
        yield RunTest("metadata", "has", f"{_written(name)}:{_written(value)}")
    if (reason := wanted.get("stop_reason")) is not None:
        yield RunTest("stop_reason", "has", reason)
    for text in (wanted.get("error_class"), wanted.get("error_code")):
        # Of these, some are written by scripts, which escape more.
        if text is not None and _PLAIN.fullmatch(text):
            yield RunTest("error", "has", f'"{text}"')
    if (retried := wanted.get("retried")) is not None:
        yield RunTest("retried_as", "set" if retried else "unset")
    if (after := wanted.get("ended_after")) is not None:
        yield RunTest("ended_at", "from", str(records.millis(after)))
    if (before := wanted.get("ended_before")) is not None:
        yield RunTest("ended_at", "to", str(records.millis(before)))
    if (agent := wanted.get("agent")) is not None:
        yield RunTest("agent", "has", f'"name":{_in_agent(agent)}')
    if (provider := wanted.get("provider")) is not None:
        yield RunTest("agent", "has", _in_agent(f"{provider}/")[:-1])
    for text in (wanted.get("model"), wanted.get("tool")):
        if text is not None:
            yield RunTest("agent", "has", _in_agent(text))


def _written(text: str) -> str:
    """As it is in tags and metadata."""
    return orjson.dumps(text).decode()


def _in_agent(text: str) -> str:
    """As it is in an agent."""
    return to_json(text).decode()


def _parts(places: Sequence[_Place]) -> Iterator[Sequence[_Place]]:
    for start in range(0, len(places), _TOGETHER):
        yield places[start : start + _TOGETHER]
