"""The backlog of the archive: conversations of the store that it lacks, taken, read and acknowledged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from palaver.store.reading.recall import absent
from palaver.store.redis import keys
from palaver.store.redis.connection import Fields, now_ms, portions
from palaver.store.redis.visits import ask_each
from palaver.store.scripting.contracts.logs import LogPage, ReadLog
from palaver.store.scripting.log_entries import in_reply, number
from palaver.store.sides import Ground
from palaver.vocabulary.ids import is_id, shard_of

from . import archive_keys
from .contract import (
    Acknowledge,
    ArchiveAnew,
    Noted,
    NoteOld,
    NotResting,
    ReadResting,
    SettleDeletion,
    TakeUnarchived,
)
from .records import ArchivedConversation, ArchivedEntry, ArchivedRun, goes_on
from .terms import FORGOTTEN, LEASE

DELETED: Final = "-"
"""In front of an id that is to be forgotten."""
_AT_ONCE: Final = 50
"""Ids that are taken of a shard."""
_RUNS_AT_ONCE: Final = 100
_ACKNOWLEDGED: Final = 1_000
"""Runs of a conversation that one script lets go."""
_PART: Final = 4 << 20
"""Characters of the log of a conversation that goes on which are archived at once, and the page with the last of
them."""
_LISTED: Final = 1000
"""Conversations of a list that are looked at in one go."""


class Backlog:
    """The conversations that have something which the archive lacks."""

    def __init__(self, ground: Ground) -> None:
        self._redis = ground.redis
        self._scripts = ground.scripts
        self._rounds = ground.rounds

    async def size(self) -> int:
        """Return how many ids it has, of all shards."""
        return sum((await self._sizes(self._rounds.shards)).values())

    async def oldest(self) -> float:
        """Return for how long (s) what waits longest has waited; 0 if nothing does. Of each shard those are looked at
        that workers are to look at next."""
        next_of_each = await ask_each(
            self._redis,
            self._rounds.shards,
            lambda pipeline, shard: pipeline.zrange(archive_keys.unarchived(shard), 0, _AT_ONCE, withscores=True),
        )
        found = [(member.decode(), at / 1000) for _, (rows,) in next_of_each for member, at in rows]
        noted = await self._all(*(("HGET", keys.conversation(each), "changes") for each, _ in found if _is_there(each)))
        times = [float(changes) for changes in noted if changes] + [at for each, at in found if not _is_there(each)]
        return max(0.0, await now_ms(self._redis) / 1000 - min(times)) if times else 0.0

    async def take(self) -> list[str]:
        """Take some ids. Others look at them once the lease is over, unless they are acknowledged."""
        sizes = await self._sizes(self._rounds.turn("unarchived", 2))
        taken = await self._scripts.run_for_each(
            [shard for shard, size in sizes.items() if size],
            lambda shard: TakeUnarchived(unarchived=archive_keys.unarchived(shard), limit=_AT_ONCE, lease=LEASE),
        )
        return [any_id for _, reply in taken for any_id in reply.ids]

    async def _sizes(self, shards: Sequence[str]) -> dict[str, int]:
        counted = await ask_each(
            self._redis, shards, lambda pipeline, shard: pipeline.zcard(archive_keys.unarchived(shard))
        )
        return {shard: size for shard, (size,) in counted}

    async def read(self, conversation_id: str) -> ArchivedConversation | None:
        """Return a conversation that rests, with what the archive lacks of its log, and the runs that this is about; or
        a part of that, if it goes on and its log is long. None: there is nothing of it to archive now.

        Raises ValueError for a record that is not as it was written.
        """
        reply = await self._scripts.run(
            ReadResting(
                conversation=keys.conversation(conversation_id),
                log=keys.log(conversation_id),
                unarchived=archive_keys.unarchived(shard_of(conversation_id)),
            )
        )
        if isinstance(reply, NotResting):
            return None
        fields = dict(zip(reply.fields[::2], reply.fields[1::2], strict=True))
        after, more = int(fields.get("archived", 0)), goes_on(fields)
        entries = await self._entries(conversation_id, after, int(fields.get("entries", 0)), _PART if more else None)
        if entries is None:
            return None
        if more and entries:
            fields["entries"] = str(entries[-1].position)
        named = {entry.fields["run"] for entry in entries}
        runs = await self._runs(conversation_id, filter(None, named), unfinished=more)
        # Their records say by which run each was retried.
        earlier = {before for run in runs if (before := run.fields.get("retried_from"))} - named
        runs += await self._runs(conversation_id, earlier)
        if more and any(_ended(run) >= _marked(fields) for run in runs):
            # Its end is behind these entries, and notes it again; or the next run's are.
            return None
        # If it was changed or went while it was read, it is noted again.
        now = await self._redis.hget(keys.conversation(conversation_id), "changes")
        if now != fields.get("changes", "").encode():
            return None
        return ArchivedConversation(conversation_id, fields, entries, runs, after)

    async def _entries(
        self, conversation_id: str, after: int, through: int, most: int | None = None
    ) -> list[ArchivedEntry] | None:
        """Those between two positions: what is behind is of a run that has begun since. None: it is not there. About
        ``most`` characters of them, if that is said."""
        conversation, log = keys.conversation(conversation_id), keys.log(conversation_id)
        entries, ends, size = list[ArchivedEntry](), False, 0
        while not ends and after < through and (most is None or size < most):
            reply = await self._scripts.run(ReadLog(conversation=conversation, log=log, after=after))
            if not isinstance(reply, LogPage):
                return None
            ends = reply.ends
            for entry_id, fields in map(in_reply, reply.entries):
                after = number(entry_id)
                entries.append(ArchivedEntry(after, _texts(fields)))
                size += sum(map(len, fields.values()))
        return [entry for entry in entries if entry.position <= through]

    async def _runs(
        self, conversation_id: str, run_ids: Iterable[str], *, unfinished: bool = False
    ) -> list[ArchivedRun]:
        """Those of these runs that have ended, or all. A log that began as a copy has entries of runs of another
        one."""
        found: list[ArchivedRun] = []
        for some in portions([run_id for run_id in run_ids if is_id("run", run_id)], _RUNS_AT_ONCE):
            pipeline = self._redis.pipeline(transaction=False)
            for run_id in some:
                pipeline.hgetall(keys.run(run_id))
            for run_id, fields in zip(some, await pipeline.execute(), strict=True):
                its = fields.get(b"conversation") == conversation_id.encode()
                if its and (unfinished or b"ended_at" in fields):
                    found.append(ArchivedRun(run_id, _texts(fields)))
        return found

    async def read_whole(self, conversation_id: str) -> ArchivedConversation | None:
        """Return all that the store has of a conversation which the archive is to have; None if it is not there, or
        the archive lacks something of it."""
        before = await self._settled(conversation_id)
        if before is None:
            return None
        entries = await self._entries(conversation_id, 0, int(before.get("entries", 0)))
        if entries is None:
            return None
        runs = await self._runs(conversation_id, {entry.fields["run"] for entry in entries} - {""})
        if await self._settled(conversation_id) != before:
            return None
        return ArchivedConversation(conversation_id, before, entries, runs, 0)

    async def _settled(self, conversation_id: str) -> dict[str, str] | None:
        """Return the hash of a conversation that rests, is not being deleted, and is not noted."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hgetall(keys.conversation(conversation_id))
        pipeline.execute_command("ZSCORE", archive_keys.unarchived(shard_of(conversation_id)), conversation_id)
        found, noted = await pipeline.execute()
        fields = _texts(found)
        rests = fields and "deleting" not in fields and not goes_on(fields)
        return fields if rests and noted is None else None

    async def note_old(self, ids: Iterable[str]) -> int:
        """Have those of these conversations forgotten that the store does not have; return how many these are."""
        replies = await self._scripts.run_all(
            NoteOld(conversation=keys.conversation(each), log=keys.log(each)) for each in ids
        )
        return sum(isinstance(reply, Noted) for reply in replies)

    async def absent(self, ids: Sequence[str]) -> Sequence[str]:
        """Return those of these conversations that the store does not have."""
        return await absent(self._redis, ids)

    async def now(self) -> int:
        """Return the time (ms), by the store's clock."""
        return await now_ms(self._redis)

    async def all_ids(self) -> AsyncIterator[str]:
        """Yield the ids of all conversations of the store."""
        for shard in self._rounds.shards:
            for owner in keys.ALL_TENANTS:
                listed = keys.conversations(shard, "", owner)
                # From the end: those that leave the list meanwhile move none over a place that was looked at.
                (seen,) = await self._all(("ZCARD", listed))
                while seen > 0:
                    first = max(0, seen - _LISTED)
                    for conversation_id in await self._redis.zrange(listed, first, seen - 1):
                        yield conversation_id.decode()
                    seen = first

    async def note_all(self) -> int:
        """Have everything archived anew that rests; return how many conversations that are."""
        noted = 0
        async for conversation_id in self.all_ids():
            noted += await self.archive_anew([conversation_id])
        return noted

    async def _all(self, *commands: Sequence[str]) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return await pipeline.execute()

    async def acknowledge(self, archived: Sequence[ArchivedConversation]) -> None:
        """Say that the archive has these. Those in which more has happened meanwhile stay among what it lacks."""
        await self._scripts.run_all(acknowledgement for each in archived for acknowledgement in _acknowledgements(each))

    async def archive_anew(self, ids: Iterable[str]) -> int:
        """Have those of these that rest archived from their beginning; return how many these are."""
        replies = await self._scripts.run_all(
            ArchiveAnew(conversation=keys.conversation(each), log=keys.log(each)) for each in ids
        )
        return sum(isinstance(reply, Noted) for reply in replies)

    async def deleted(self, ids: Sequence[str]) -> dict[str, int]:
        """Return those of these that the archive is to forget yet, and since when (ms)."""
        noted = await self._all(*(("ZSCORE", archive_keys.unarchived(shard_of(each)), DELETED + each) for each in ids))
        return {each: int(float(at)) for each, at in zip(ids, noted, strict=True) if at is not None}

    async def forgotten(self, deleted: Mapping[str, int]) -> None:
        """Say that the archive has nothing of these any more, which are deleted here since then."""
        await self._scripts.run_all(
            SettleDeletion(
                unarchived=archive_keys.unarchived(shard_of(each)),
                forgotten=archive_keys.forgotten(shard_of(each)),
                mark=DELETED + each,
                since=since,
                lasts=FORGOTTEN,
            )
            for each, since in deleted.items()
        )


def _acknowledgements(archived: ArchivedConversation) -> Iterator[Acknowledge]:
    """Yield the scripts that acknowledge a conversation: the last one all of it, those before it some of its runs."""
    position = archived.entries[-1].position if archived.entries else archived.after
    ended = [run for run in archived.runs if "ended_at" in run.fields]
    portion = [*portions(ended, _ACKNOWLEDGED)] or [()]
    for place, runs in enumerate(portion, 1):
        yield Acknowledge(
            conversation=keys.conversation(archived.id),
            log=keys.log(archived.id),
            unarchived=archive_keys.unarchived(shard_of(archived.id)),
            changes=archived.fields.get("changes", "") if place == len(portion) else "",
            position=position,
            runs=tuple(run.id for run in runs),
        )


def _texts(fields: Fields) -> dict[str, str]:
    """Return a hash as it is archived: not whether it has come from there."""
    return {name.decode(): value.decode() for name, value in fields.items() if name != b"recalled"}


def _ended(run: ArchivedRun) -> float:
    """The time (ms) of its end; nothing is before that of one that goes on."""
    return float(run.fields.get("ended_at", "-inf"))


def _marked(fields: Mapping[str, str]) -> int:
    """The time (ms) of the mark of a conversation: its seconds, a point, and its microseconds."""
    seconds, micros = fields["changes"].split(".")
    return int(seconds) * 1000 + int(micros) // 1000


def _is_there(member: str) -> bool:
    return not member.startswith(DELETED)
