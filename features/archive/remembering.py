"""Runs and conversations that come back from the archive.

A conversation comes back as it was: its hash, its log, its places in lists, and its latest runs; any other run when it
is asked for. The log goes into a key of its own first, a part at a time. Then a script puts the conversation there,
unless another process was faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from secrets import token_hex
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from palaver.errors import ConfigurationError
from palaver.store.redis import keys
from palaver.store.sides import Ground
from palaver.vocabulary.ids import is_id, shard_of

from .contract import BringBack, BringRunBack, BroughtBack, ExpectLog, StoredField
from .errors import ArchiveAway
from .records import ArchivedRun

if TYPE_CHECKING:
    from .database import Database

_ENTRIES: Final = 200
"""Entries of a log that are read and written at once, at most."""
_LATEST: Final = 20
"""Runs that come back with their conversation."""
_LASTS: Final = 600
"""Seconds for which a log is kept that does not become whole."""


class ArchiveMemory:
    """The memory that is an archive."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._flights: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock for each conversation that comes back: many may ask for one at once."""

    async def prepare(self) -> None:
        """Load what speaks to the database, beside what this process does."""
        await asyncio.to_thread(lambda: self._database)

    @cached_property
    def _database(self) -> Database:
        from .database import Database

        return Database.of(self._url)

    async def recall(self, ground: Ground, any_id: str) -> bool:
        """As `palaver.store.recall.Remembering.recall`."""
        try:
            run_id = any_id if is_id("run", any_id) else None
            conversation_id = any_id if run_id is None else await self._database.conversation_of(run_id)
            if conversation_id is None:
                return False
            async with self._flights.setdefault(conversation_id, asyncio.Lock()):
                return await self._recall(ground, conversation_id, run_id)
        except ConfigurationError as error:
            # It is another one than this version can read, for now.
            raise ArchiveAway(str(error)) from None

    async def _recall(self, ground: Ground, conversation_id: str, run_id: str | None) -> bool:
        runs = [] if run_id is None else [await self._database.run(run_id)]
        if not await ground.redis.exists(keys.conversation(conversation_id)):
            fields = await self._database.record(conversation_id)
            if fields is None:
                return False
            await ground.capacity.admit()
            if not await self._bring(ground, conversation_id, fields):
                return False
            runs += await self._database.latest_runs(conversation_id, _LATEST)
        there = [await self._bring_run(ground, conversation_id, run) for run in runs if run is not None]
        return run_id is None or any(there)

    async def _bring(self, ground: Ground, conversation_id: str, fields: Mapping[str, str]) -> bool:
        shard = shard_of(conversation_id)
        copied, position = keys.copied(shard, token_hex(8)), 0
        conversation, log = keys.conversation(conversation_id), keys.log(conversation_id)
        await ground.scripts.run(ExpectLog(conversation=conversation, log=log, copied=copied, lasts=_LASTS))
        while entries := await self._database.entries(conversation_id, position, _ENTRIES):
            pipeline = ground.redis.pipeline(transaction=False)
            for entry in entries:
                words = (word for field in entry.fields.items() for word in field)
                pipeline.execute_command("XADD", copied, f"{entry.position}-0", *words)
            pipeline.expire(copied, _LASTS)
            await pipeline.execute()
            position = entries[-1].position
        reply = await ground.scripts.run(
            BringBack(
                conversation=conversation,
                log=log,
                copied=copied,
                position=position,
                stored_fields=tuple(StoredField(name, value) for name, value in fields.items()),
            )
        )
        return isinstance(reply, BroughtBack)

    async def _bring_run(self, ground: Ground, conversation_id: str, run: ArchivedRun) -> bool:
        reply = await ground.scripts.run(
            BringRunBack(
                conversation=keys.conversation(conversation_id),
                log=keys.log(conversation_id),
                run=keys.run(run.id),
                run_id=run.id,
                created_at=int(run.fields["created_at"]),
                stored_fields=tuple(StoredField(name, value) for name, value in run.fields.items()),
            )
        )
        return isinstance(reply, BroughtBack)

    async def close(self) -> None:
        """Give the connections back."""
        if "_database" in vars(self):
            await self._database.close()
