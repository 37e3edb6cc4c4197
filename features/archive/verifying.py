"""Comparison of the archive with itself and with what the store still has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Final, NamedTuple

import orjson

from palaver.events import EventKind

from .backlog import Backlog
from .database import Database
from .records import ArchivedConversation, ArchivedEntry

_PAGE: Final = 200
_ALL: Final = 1_000_000
"""More runs than a conversation has."""
_OWN: Final = frozenset({"archived", "changes", "in_archive"})
"""Fields of a conversation that say how far it is archived: they change without being archived."""


class Fault(NamedTuple):
    """A thing that is not as it should be."""

    id: str
    """The conversation."""
    what: str


class Verification:
    """One comparison of all that there is."""

    def __init__(self, backlog: Backlog, database: Database) -> None:
        self._backlog = backlog
        self._database = database
        self.looked = 0
        """Conversations that were compared."""

    async def faults(self) -> AsyncGenerator[Fault, None]:
        """Yield what is not as it should be. What changes meanwhile is none."""
        after = ""
        while ids := await self._database.ids(after, _PAGE):
            after = ids[-1]
            for conversation_id in ids:
                self.looked += 1
                for what in await self._compared(conversation_id):
                    yield Fault(conversation_id, what)
        async for conversation_id in self._backlog.all_ids():
            # In this order: what is archived by then is not noted any more.
            rests = await self._backlog.read_whole(conversation_id) is not None
            if rests and await self._database.record(conversation_id) is None:
                yield Fault(conversation_id, "it rests in the store, and the archive does not have it")

    async def _compared(self, conversation_id: str) -> list[str]:
        """The faults of a conversation. One that was written meanwhile is compared again."""
        while True:
            before = await self._database.versions([conversation_id])
            archived = await self._read(conversation_id)
            found = [
                *await self._database.amiss(conversation_id),
                *_faults_of_log(archived),
                *_faults_of_runs(archived),
            ]
            if stored := await self._backlog.read_whole(conversation_id):
                found += _differences(archived, stored)
            if await self._database.versions([conversation_id]) == before:
                return found

    async def _read(self, conversation_id: str) -> ArchivedConversation:
        fields = await self._database.record(conversation_id) or {}
        entries, after = list[ArchivedEntry](), 0
        while page := await self._database.entries(conversation_id, after, _PAGE):
            entries += page
            after = page[-1].position
        runs = await self._database.latest_runs(conversation_id, _ALL)
        return ArchivedConversation(conversation_id, fields, entries, runs, 0)


def _differences(archived: ArchivedConversation, stored: ArchivedConversation) -> Iterator[str]:
    if _without(archived.fields) != _without(stored.fields):
        yield "its record is another one in the store"
    if archived.entries != stored.entries:
        yield "its log is another one in the store"
    runs = {run.id: run.fields for run in archived.runs}
    yield from (f"{run.id} is another one in the store" for run in stored.runs if runs.get(run.id) != run.fields)


def _faults_of_log(archived: ArchivedConversation) -> Iterator[str]:
    fields, positions = archived.fields, [entry.position for entry in archived.entries]
    last = int(fields.get("entries", 0))
    if positions and positions[-1] > last:
        yield f"its log goes on behind its end, {last}"
    # Deletions leave gaps, also in what is copied.
    if "deletions" not in fields and "forked_from" not in fields and len(positions) != last:
        yield f"its log has {len(positions)} of {last} entries"
    for entry in archived.entries:
        if {*entry.fields} < {"type", "at", "run", "seq", "data"} or not _is_json(entry.fields["data"]):
            yield f"its entry {entry.position} cannot be read"


def _faults_of_runs(archived: ArchivedConversation) -> Iterator[str]:
    runs = {run.id: run.fields for run in archived.runs}
    for run in archived.runs:
        if run.fields.get("conversation") != archived.id or run.fields.get("id") != run.id:
            yield f"{run.id} is the record of another one"
        elif "ended_at" not in run.fields and not archived.goes_on:
            yield f"{run.id} has not ended"
    if "forked_from" in archived.fields:
        return
    for entry in archived.entries:
        if entry.fields.get("type") == EventKind.RUN_FINISHED:
            run_id = entry.fields["run"]
            if run_id not in runs:
                yield f"{run_id} ended, and is not archived"
            elif orjson.loads(entry.fields["data"])["status"] != runs[run_id].get("status"):
                yield f"{run_id} ended otherwise"


def _is_json(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except ValueError:
        return False


def _without(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if name not in _OWN}
