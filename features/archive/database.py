"""The database of an archive: a PostgreSQL, or a file of SQLite.

What speaks to it is imported with the first `Database`, and needs the extra ``palaver[archive]``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, Self

from palaver.errors import ConfigurationError

from .records import ArchivedConversation, ArchivedEntry, ArchivedRun, ArchivedVersions

if TYPE_CHECKING:
    from datetime import datetime

    from palaver.schemas.conversation import ConversationFilter, ConversationOrder
    from palaver.schemas.filters import RunFilter
    from palaver.store.reading.finding import Place

    from .connections import Connections
    from .searching import Found

PAGE_BYTES: Final = 8 * 1024 * 1024
"""Bytes of entries that are read at once."""


class Database:
    """The database of an archive.

    What its methods raise: `ArchiveAway` where it is not there or does not answer in time, `ArchiveRefused` for what it
    does not take, ConfigurationError where it lacks the tables of this version or the rights. Then nothing was written;
    or, where the connection broke, all or nothing was. To do it again does no harm.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def __repr__(self) -> str:
        return f"<Database {self._connections.where}>"

    @classmethod
    def of(cls, url: str) -> Self:
        """Return the database of a URL: ``postgresql://…`` as libpq reads it, ``sqlite:///relative`` or
        ``sqlite:////absolute``. It is not connected to yet.

        Raises:
            ConfigurationError: the URL is another one, or the extra is not installed.
        """
        try:
            from .connections import connections_of

            return cls(connections_of(url))
        except ModuleNotFoundError as missing:
            raise ConfigurationError(
                f"an archive needs {missing.name}, which is not installed: pip install 'palaver[archive]'"
            ) from None

    async def migrate(self) -> None:
        """Bring the schema to the newest revision. Several processes may do so at once.

        Raises:
            ConfigurationError: the schema is newer than this code, or the database cannot have it.
        """
        from .tables import NEWEST

        if await self.revision() != NEWEST:
            # Alembic is loaded beside the steps of this process.
            schema = await asyncio.to_thread(import_module, f"{__package__}.schema")
            await schema.migrate(self._connections)

    async def revision(self) -> str | None:
        """Return the revision of the schema; None if there is none yet."""
        from .reading import revision

        async with self._connections.reading() as connection:
            return await revision(connection)

    async def versions(self, ids: Sequence[str]) -> ArchivedVersions:
        """Look up the state of conversations in the archive, before they are read from Redis to be written."""
        from .writing import versions

        async with self._connections.reading() as connection:
            return await versions(connection, ids)

    async def write(self, conversations: Sequence[ArchivedConversation], since: ArchivedVersions | None = None) -> None:
        """Write conversations, all or none. Of each the entries behind its position are replaced, and the runs that are
        given. The same again changes nothing that is read.

        Raises, where they are to be what they were at ``since``:
            ArchiveOvertaken: one of them was written or deleted after that.
            ArchiveBehind: of one there is less than goes before what is given.
            ArchiveRefused: one has the id of another conversation that is there.
        """
        from .writing import write

        if conversations:
            async with self._connections.writing() as connection:
                await write(connection, conversations, since)

    async def last_act(self, tag: str) -> str | None:
        """Return the id of the last act of a tenant; None if there is none."""
        from .reading import last_act

        async with self._connections.reading() as connection:
            return await last_act(connection, tag)

    async def write_acts(self, tag: str, acts: Mapping[str, str], since: ArchivedVersions) -> None:
        """Write acts of a tenant, as JSON by their ids. The same again changes nothing.

        Raises:
            ArchiveOvertaken: something was deleted after ``since``.
        """
        from .writing import write_acts

        async with self._connections.writing() as connection:
            await write_acts(connection, tag, acts, since)

    async def forget_conversations(
        self,
        ids: Sequence[str],
        since: ArchivedVersions | None = None,
        *,
        deleted_at: Mapping[str, int] | None = None,
    ) -> None:
        """Delete conversations, with their runs and entries; if it is said when they were deleted (ms), those that
        began before.

        Raises:
            ArchiveOvertaken: one of them was written or deleted after ``since``.
        """
        from .writing import forget_conversations

        async with self._connections.writing() as connection:
            await forget_conversations(connection, ids, since, deleted_at)

    async def forget_runs(self, ids: Iterable[str]) -> None:
        """Delete runs, and their entries in the logs of their conversations."""
        from .writing import forget_runs

        async with self._connections.writing() as connection:
            await forget_runs(connection, ids)

    async def forget_tenant(self, tag: str, limit: int) -> dict[str, int]:
        """Delete up to ``limit`` rows of a tenant. Return how many of each table, by name: 0 of all once nothing is
        left."""
        from .writing import forget_tenant

        async with self._connections.writing() as connection:
            return await forget_tenant(connection, tag, limit)

    async def conversation_of(self, run_id: str) -> str | None:
        """Return the id of the conversation of a run; None if the run is not here."""
        from .reading import conversation_of

        async with self._connections.reading() as connection:
            return await conversation_of(connection, run_id)

    async def entries(
        self, conversation_id: str, after: int, limit: int, *, most_bytes: int = PAGE_BYTES
    ) -> Sequence[ArchivedEntry]:
        """Return the next entries of a conversation behind a position: as many as there are within both limits, and at
        least one of any size."""
        from .reading import entries

        async with self._connections.reading() as connection:
            return await entries(connection, conversation_id, after, limit, most_bytes)

    async def record(self, conversation_id: str) -> Mapping[str, str] | None:
        """Return the fields of a conversation; None if it is not here."""
        from .reading import conversation

        async with self._connections.reading() as connection:
            return await conversation(connection, conversation_id)

    async def run(self, run_id: str) -> ArchivedRun | None:
        """Return a run; None if it is not here."""
        from .reading import run

        async with self._connections.reading() as connection:
            return await run(connection, run_id)

    async def runs(self, ids: Sequence[str]) -> Sequence[ArchivedRun]:
        """Return those of these runs that are here."""
        from .reading import runs

        async with self._connections.reading() as connection:
            return await runs(connection, ids)

    async def unfinished_runs(self, conversation_id: str) -> Sequence[ArchivedRun]:
        """Return the runs of a conversation that had not ended when they were archived."""
        from .reading import unfinished_runs

        async with self._connections.reading() as connection:
            return await unfinished_runs(connection, conversation_id)

    async def unfinished(self, after: str, limit: int) -> Sequence[str]:
        """Return the next ids behind ``after`` of conversations with such runs, in order."""
        from .reading import unfinished

        async with self._connections.reading() as connection:
            return await unfinished(connection, after, limit)

    async def latest_runs(self, conversation_id: str, limit: int) -> Sequence[ArchivedRun]:
        """Return the newest runs of a conversation, the newest first."""
        from .reading import latest_runs

        async with self._connections.reading() as connection:
            return await latest_runs(connection, conversation_id, limit)

    async def find_runs(
        self, admitted: RunFilter, tenant: str | None, until: Place | None, place: Place | None, limit: int
    ) -> Found:
        """Return the next runs of a tenant, or of all, that may fit, newest first: those behind ``place``, and not
        beyond ``until``."""
        from .searching import find_runs

        async with self._connections.reading() as connection:
            return await find_runs(connection, admitted, tenant, until, place, limit)

    async def find_conversations(
        self,
        admitted: ConversationFilter,
        tenant: str | None,
        order: ConversationOrder,
        until: Place | None,
        place: Place | None,
        limit: int,
    ) -> Found:
        """Return the next conversations of a tenant, or of all, that fit, in that order: those behind ``place``, and
        not beyond ``until``."""
        from .searching import find_conversations

        async with self._connections.reading() as connection:
            return await find_conversations(connection, admitted, tenant, order, until, place, limit)

    async def run_counts(
        self, tenant: str | None, after: datetime | None, before: datetime | None, most: int
    ) -> tuple[Mapping[str, int], bool]:
        """Return the number of runs in each status, of the ``most`` newest that were created between these times, and
        whether these are all."""
        from .searching import run_counts

        async with self._connections.reading() as connection:
            return await run_counts(connection, tenant, after, before, most)

    async def count_conversations(
        self, admitted: ConversationFilter, tenant: str | None, most: int
    ) -> tuple[int, bool]:
        """Return the number of conversations that fit, of the ``most`` newest, and whether these are all."""
        from .searching import count_conversations

        async with self._connections.reading() as connection:
            return await count_conversations(connection, admitted, tenant, most)

    async def ids(self, after: str, limit: int) -> Sequence[str]:
        """Return the next ids of conversations behind ``after``, in order."""
        from .reading import ids

        async with self._connections.reading() as connection:
            return await ids(connection, after, limit)

    async def older_than(self, seconds: float, limit: int, place: Place | None = None) -> Sequence[Place]:
        """Return the conversations in which nothing has happened for so long, by the database's clock: those behind a
        place, each with the time (ms) of what happened last, in that order."""
        from .searching import older_than

        async with self._connections.reading() as connection:
            return await older_than(connection, seconds, limit, place)

    async def amiss(self, conversation_id: str) -> Sequence[str]:
        """Return which columns of a conversation and of its rows say something else than their records."""
        from .reading import amiss

        async with self._connections.reading() as connection:
            return await amiss(connection, conversation_id)

    async def size(self) -> Mapping[str, int]:
        """Return the rows of each table, by name, and ``bytes``, those of all tables. The rows of a large table
        are an estimate."""
        from .reading import size

        async with self._connections.reading() as connection:
            return await size(connection)

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()
