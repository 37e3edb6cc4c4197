"""All that a tenant has, as records: a page in memory at a time, each with a cursor to go on behind it."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import date, timedelta
from functools import cached_property, partial
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from palaver.config.settings import Settings
from palaver.errors import FieldError, Refused, UnknownAgent, UnknownConversation
from palaver.store import Store
from palaver.store.reading import records
from palaver.store.reading.events import LogEntry
from palaver.store.reading.usage_ledger import today
from palaver.store.redis.reach import Reach, within
from palaver.store.redis.visits import nothing_left_out
from palaver.store.sides import Placed, StoreSide, exporting
from palaver.store.tenants.tenants import Tenant

SCHEMA: Final = 1
"""The shape of the records; it grows when a reader of older ones would misunderstand them."""
_PAGE: Final = 50
T = TypeVar("T")
Record = dict[str, Any]


class _Section(NamedTuple):
    """Records of one kind, by the number that stands in cursors."""

    read: Callable[[Tenant, str], AsyncGenerator[Placed, None]]
    """Yields those of a tenant behind a place, the empty one to begin with."""
    check_place: Callable[[str], object]
    """Raises ValueError for a text that is no place there."""


class Exports:
    """Reads what tenants have."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._usage_days = timedelta(seconds=settings.usage_retention)
        self._core: Mapping[int, _Section] = {
            0: _Section(self._of_conversations, _in_log),
            1: _Section(self._of_runs, records.parse_cursor),
            2: _Section(self._of_agents, _matching(r"[^@]+@[0-9]{1,9}")),
            3: _Section(self._of_usage, date.fromisoformat),
            4: _Section(self._of_keys, _matching(r"[0-9a-z]+")),
            5: _Section(self._of_acts, _matching(r"[0-9]{1,16}-[0-9]{1,16}")),
        }

    def begin(self, tenant: Tenant, cursor: str | None = None) -> AsyncGenerator[bytes, None]:
        """Return lines of JSON: what the tenant has, behind the line with this cursor, and at last a line with the
        numbers of all kinds. What comes while it is read may be left out.

        Raises:
            Refused: ``invalid_cursor``.
        """
        section, place, counts = (0, "", Counter[str]()) if cursor is None else self._parsed(cursor)
        return self._lines(tenant, section, place, counts)

    async def _lines(
        self, tenant: Tenant, section: int, place: str, counts: Counter[str]
    ) -> AsyncGenerator[bytes, None]:
        for number, read_section in self._sections.items():
            if number < section:
                continue
            async with aclosing(read_section.read(tenant, place)) as placed:
                async for at, record in placed:
                    counts[record["kind"]] += 1
                    yield _line(record, cursor=_cursor(number, at, counts))
            place = ""
        yield _line({"kind": "end", "tenant": tenant.name, "counts": dict(sorted(counts.items()))})

    @cached_property
    def _sections(self) -> Mapping[int, _Section]:
        """All of them, in the order of their numbers. Those of features are loaded with the first export."""
        more = {number: _Section(partial(self._of_feature, side), side.check_place) for number, side in exporting()}
        return dict(sorted({**self._core, **more}.items()))

    def _of_feature(self, side: StoreSide, tenant: Tenant, place: str) -> AsyncGenerator[Placed, None]:
        return side.export(self._store.part, tenant.tag, place)

    def _parsed(self, cursor: str) -> tuple[int, str, Counter[str]]:
        try:
            section, place, counts = orjson.loads(urlsafe_b64decode(cursor.encode()))
            if type(section) is not int or section not in self._sections:
                raise ValueError(cursor)
            self._sections[section].check_place(place)
            return section, place, Counter({kind: int(number) for kind, number in counts.items()})
        except (ValueError, TypeError, AttributeError):
            fault = FieldError("?cursor", "invalid_cursor", "is not the cursor of a line of an export")
            raise Refused("invalid_cursor", faults=[fault]) from None

    async def _of_conversations(self, tenant: Tenant, place: str) -> AsyncGenerator[Placed, None]:
        """Yield each conversation behind a place, which is that of one and a position in its log; then its log."""
        behind, _, position = place.rpartition(" ")
        if behind:
            conversation_id = records.parse_cursor(behind, "conv")[1]
            async for placed in self._log(tenant, conversation_id, behind, int(position)):
                yield placed
        cursor: str | None = behind or None
        while True:
            read = partial(self._store.conversations.list, {}, limit=_PAGE, cursor=cursor, order="created")
            page = await _as(tenant, read)
            for conversation in page.conversations:
                own = records.cursor((records.millis(conversation.created_at), conversation.id))
                yield f"{own} 0", {"kind": "conversation", "conversation": conversation.model_dump(mode="json")}
                async for placed in self._log(tenant, conversation.id, own, 0):
                    yield placed
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _log(self, tenant: Tenant, conversation_id: str, own: str, position: int) -> AsyncIterator[Placed]:
        try:
            async with aclosing(self._store.runs.pages(conversation_id, after=position)) as pages:
                while page := await _as(tenant, partial(_next, pages)):
                    for entry in page:
                        event = orjson.loads(entry.to_json())
                        at = {"conversation_id": conversation_id, "position": entry.position}
                        yield f"{own} {entry.position}", {"kind": "entry", **at, "event": event}
        except UnknownConversation:
            return

    async def _of_runs(self, tenant: Tenant, place: str) -> AsyncGenerator[Placed, None]:
        cursor: str | None = place or None
        while True:
            page = await _as(tenant, partial(self._store.runs.list, {}, limit=_PAGE, cursor=cursor))
            for run in page.runs:
                own = records.cursor((records.millis(run.times.created_at), run.id))
                yield own, {"kind": "run", "run": run.model_dump(mode="json")}
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _of_agents(self, tenant: Tenant, place: str) -> AsyncGenerator[Placed, None]:
        """Yield all versions of agents behind a place, which is the name of one and a version of it."""
        name, _, version = place.partition("@")
        if name:
            async for placed in self._versions(tenant, name, int(version) + 1):
                yield placed
        more = True
        while more:
            page = await self._store.agents.list(tenant.tag, after=name, limit=_PAGE)
            for agent in page.agents:
                async for placed in self._versions(tenant, agent.name, agent.oldest):
                    yield placed
            name, more = page.last, page.more

    async def _versions(self, tenant: Tenant, name: str, first: int) -> AsyncIterator[Placed]:
        number = newest = first
        while number <= newest:
            try:
                agent = await self._store.agents.get(tenant.tag, name, number)
            except UnknownAgent:
                return
            yield f"{name}@{number}", {"kind": "agent", "agent": agent.model_dump(mode="json")}
            number, newest = number + 1, agent.newest

    async def _of_usage(self, tenant: Tenant, place: str) -> AsyncGenerator[Placed, None]:
        last = today()
        days = self._store.usage.read(last - self._usage_days, last, [tenant.tag])
        while read := await _as(tenant, partial(anext, days, None)):
            day, spent = read
            if day.isoformat() > place:
                rows = [
                    {"agent": spender.agent, "model": spender.model, "key": spender.key, **numbers}
                    for spender, numbers in spent.items()
                ]
                yield day.isoformat(), {"kind": "usage", "day": day.isoformat(), "rows": rows}

    async def _of_keys(self, tenant: Tenant, place: str) -> AsyncGenerator[Placed, None]:
        """Yield what may be shown of keys: nothing that opens them, nor a digest of it."""
        known = await self._store.api_keys.list(tenant.tag)
        ids = [record.id for record, _ in known]
        for record, used in known[ids.index(place) + 1 if place in ids else 0 :]:
            if not record.grant.operator:
                yield record.id, {"kind": "key", "key": record.shown(used).model_dump(mode="json")}

    async def _of_acts(self, tenant: Tenant, place: str) -> AsyncGenerator[Placed, None]:
        while page := await self._store.audit.read(tenant.tag, after=place, limit=_PAGE):
            for act in page:
                yield act.id, {"kind": "act", "act": act.model_dump(mode="json")}
            place = page[-1].id


async def _as(tenant: Tenant, read: Callable[[], Awaitable[T]]) -> T:
    """Return what is read within the reach of a tenant: of lists that is what it has, and all of it."""
    with within(Reach(tenant.tag)), nothing_left_out():
        return await read()


async def _next(pages: AsyncGenerator[Sequence[LogEntry], None]) -> Sequence[LogEntry]:
    """Return the next page; nothing at the end."""
    async for page in pages:
        return page
    return ()


def _in_log(place: str) -> None:
    behind, _, position = place.rpartition(" ")
    records.parse_cursor(behind, "conv")
    int(position)


def _matching(pattern: str) -> Callable[[str], None]:
    def check(place: str) -> None:
        if not re.fullmatch(pattern, place):
            raise ValueError(place)

    return check


def _cursor(section: int, place: str, counts: Counter[str]) -> str:
    return urlsafe_b64encode(orjson.dumps([section, place, counts])).decode()


def _line(record: Record, **more: str) -> bytes:
    return orjson.dumps({"schema": SCHEMA, **record, **more}) + b"\n"
