"""The loop of workers that archives what rests.

A script that lets a conversation rest notes its id in its shard. Any worker takes some of these under a lease, reads
them, writes them in one transaction, and acknowledges them in a script, which lets them go after the retention. If it
dies in between, another one does so once the lease is over, and writes the same rows.

Two may be at one conversation at once, one of them with what it read long ago. So each asks for the version that the
database has before it reads: what another one has written meanwhile is not written over, and what was not written is
not acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from palaver.errors import ConfigurationError, CorruptRecord
from palaver.vocabulary.ids import is_id

from .acts import AT_ONCE, Acts
from .backlog import DELETED, Backlog
from .database import Database
from .errors import SLOW, ArchiveAway, ArchiveBehind, ArchiveOvertaken, ArchiveRefused
from .losses import end_lost
from .records import ArchivedConversation, ArchivedVersions

_log: Final = logging.getLogger("palaver.features.archive")

_IDLE: Final = 0.5
"""Seconds between two looks, while there is nothing to archive."""
_LONGEST: Final = 15.0
"""Seconds between two looks at a database that is away, at most."""
_BETWEEN: Final = 60.0
"""Seconds between two looks for what is not kept any longer, what the store has lost, and acts."""
_OLD: Final = 1_000
"""Conversations of which it is asked in one go whether the store has them."""
_AT_ONCE: Final = 20
"""Conversations that are written in one transaction."""
_BATCH: Final = 4 << 20
"""Characters that are written in one transaction, and what one conversation has beyond them."""


class Archiver:
    """Archives what any of the workers has brought to rest."""

    def __init__(
        self, backlog: Backlog, database: Database, keep: float | None = None, acts: Acts | None = None
    ) -> None:
        self._backlog = backlog
        self._database = database
        self._keep = keep
        self._acts = acts
        self._archived_acts: dict[str, str] = {}
        """The last act of each tenant that has been archived, as far as this process knows."""

    async def run(self) -> None:
        """Archive, for ever. A database that is away is waited for."""
        wait, migrated, said, due = _IDLE, False, False, 0.0
        try:
            while True:
                try:
                    if not migrated:
                        await self._database.migrate()
                        migrated, wait = True, _IDLE
                    if not await self.look():
                        await asyncio.sleep(_IDLE)
                    if (now := asyncio.get_running_loop().time()) >= due:
                        due = now + _BETWEEN
                        await self.forget_old()
                        await self.end_lost()
                        await self.archive_acts()
                except (ArchiveAway, ConfigurationError) as error:
                    if migrated or not said:
                        _log.warning("what has ended stays in the store until the archive is back: %s", error)
                    # It may be another one when it is back.
                    self._archived_acts.clear()
                    said = True
                    migrated, wait = False, min(2 * wait, _LONGEST)
                    await asyncio.sleep(wait)
        finally:
            await self._database.close()

    async def look(self) -> int:
        """Archive some of what there is; return how many ids that were."""
        ids = await self._backlog.take()
        await self._forget([any_id.removeprefix(DELETED) for any_id in ids if any_id.startswith(DELETED)])
        lacking = [any_id for any_id in ids if not any_id.startswith(DELETED)]
        while lacking:
            lacking = lacking[await self._archive(lacking) :]
        return len(ids)

    async def forget_old(self) -> int:
        """Have conversations forgotten in which nothing has happened for longer than they are kept; return how many.
        One that the store has is none of them."""
        if self._keep is None:
            return 0
        noted, place = 0, None
        while not noted and (old := await self._database.older_than(self._keep, _OLD, place)):
            noted, place = await self._backlog.note_old(each for _, each in old), old[-1]
        return noted

    async def end_lost(self) -> int:
        """End what went on when the store was lost with it; return how many conversations that are."""
        ended, after = 0, ""
        while ids := await self._database.unfinished(after, _OLD):
            after = ids[-1]
            for each in await self._backlog.absent(ids):
                try:
                    ended += await end_lost(self._database, each, await self._backlog.now())
                except (ArchiveRefused, CorruptRecord) as error:
                    _log.error("%s was lost, and cannot be ended: %s", each, error)
        return ended

    async def archive_acts(self) -> int:
        """Archive what was done with keys; return how many acts that are."""
        if self._acts is None:
            return 0
        written = 0
        for tag, newest in (await self._acts.newest()).items():
            # There may be 10,000 tenants, and each worker looks: the database is asked where there is something new.
            if self._archived_acts.get(tag) == newest:
                continue
            since = await self._database.versions(())
            with suppress(ArchiveOvertaken):
                # A deletion may be in between, perhaps the tenant's: then it is looked at again.
                while acts := await self._acts.behind(tag, await self._database.last_act(tag)):
                    await self._database.write_acts(tag, acts, since)
                    written += len(acts)
                    if len(acts) < AT_ONCE:
                        break
                self._archived_acts[tag] = newest
        return written

    async def _forget(self, deleted: Sequence[str]) -> None:
        if not deleted:
            return
        # An id of a conversation may be used again: what is archived under it by then is another one.
        since = await self._database.versions(deleted)
        noted = await self._backlog.deleted(deleted)
        try:
            # One that began after that is another one of its id.
            conversations = [each for each in noted if is_id("conv", each)]
            await self._database.forget_conversations(conversations, since, deleted_at=noted)
            await self._database.forget_runs(each for each in noted if is_id("run", each))
        except (ArchiveRefused, ArchiveOvertaken) as error:
            _log.warning("%d deletions do not reach the archive yet: %s", len(noted), error)
            return
        await self._backlog.forgotten(noted)

    async def _archive(self, ids: Sequence[str]) -> int:
        """Archive the first of these; return how many that are."""
        since = await self._database.versions(ids[:_AT_ONCE])
        batch, size, looked = list[ArchivedConversation](), 0, 0
        for conversation_id in ids[:_AT_ONCE]:
            looked += 1
            try:
                read = await self._backlog.read(conversation_id)
            except ValueError as error:
                _log.error("%s cannot be archived: %r", conversation_id, error)
                continue
            if read is not None:
                batch.append(read)
                size += _size(read)
            if size >= _BATCH:
                break
        await self._write(batch, since)
        return looked

    async def _write(self, batch: Sequence[ArchivedConversation], since: ArchivedVersions) -> None:
        """Write these, and acknowledge them. One that cannot be written is no reason to leave others; another worker
        looks at it once the lease is over."""
        if not batch:
            return
        try:
            await self._database.write(batch, since)
        except ArchiveBehind as behind:
            _log.warning("%d conversations are archived anew: %s", len(behind.ids), behind)
            await self._backlog.archive_anew(behind.ids)
            await self._write([each for each in batch if each.id not in behind.ids], since)
            return
        except (ArchiveRefused, ArchiveOvertaken) as error:
            if len(batch) == 1:
                _log.warning("%s is not archived: %s", batch[0].id, error)
            else:
                for each in batch:
                    await self._write([each], since)
            return
        except ArchiveAway as away:
            if away.reason != SLOW or len(batch) == 1:
                raise
            await self._write_apart(batch, since)
            return
        await self._backlog.acknowledge(batch)

    async def _write_apart(self, batch: Sequence[ArchivedConversation], since: ArchivedVersions) -> None:
        """Write what took too long together. Slow is one of them, or the database: it is, if two are and none was
        written."""
        slow = list[ArchivedConversation]()
        for tried, each in enumerate(batch, 1):
            try:
                await self._write([each], since)
            except ArchiveAway as away:
                slow.append(each)
                if away.reason != SLOW or (len(slow) > 1 and len(slow) == tried):
                    raise
                _log.warning("%s is not archived: %s", each.id, away)


def _size(archived: ArchivedConversation) -> int:
    hashes = (archived.fields, *(entry.fields for entry in archived.entries), *(run.fields for run in archived.runs))
    return sum(len(value) for fields in hashes for value in fields.values())
