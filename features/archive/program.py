"""``palaver archive``: what the archive has, and whether that is what the store has.

A program of its own, for where workers run: it has the same database, and the same Redis.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final

from palaver.config.exits import refusing, run_program
from palaver.config.settings import settings
from palaver.errors import ConfigurationError, UnknownRecord
from palaver.store import Store
from palaver.vocabulary.ids import is_id

from .backlog import Backlog
from .database import Database
from .errors import ArchiveAway, ArchiveRefused
from .terms import archive_url
from .verifying import Verification

_SHOWN: Final = 100
"""Faults that are printed: there may be one for each conversation."""


async def _status(store: Store, database: Database, options: argparse.Namespace) -> int:
    size = await database.size()
    print(f"schema         {await database.revision() or 'none: palaver archive migrate'}")
    print(f"archived       {size['conversations']} conversations, {size['runs']} runs, {size['entries']} entries")
    print(f"size           {size['bytes'] / (1 << 20):.1f} MiB")
    backlog = store.part(Backlog)
    print(f"to be archived {await backlog.size()}, the oldest since {await backlog.oldest():.0f} s")
    return 0


async def _verify(store: Store, database: Database, options: argparse.Namespace) -> int:
    found, verification = 0, Verification(store.part(Backlog), database)
    async with aclosing(verification.faults()) as faults:
        async for fault in faults:
            found += 1
            if found <= _SHOWN:
                print(f"{fault.id}: {fault.what}")
    print(f"{verification.looked} conversations: {found} faults")
    return 1 if found else 0


async def _backfill(store: Store, database: Database, options: argparse.Namespace) -> int:
    noted = await store.part(Backlog).note_all()
    print(f"{noted} conversations are to be archived: workers do so. `palaver archive status` counts what is left.")
    return 0


async def _restore(store: Store, database: Database, options: argparse.Namespace) -> int:
    any_id = options.id
    try:
        if is_id("run", any_id):
            await store.runs.get(any_id)
        else:
            await store.runs.conversation(any_id)
    except UnknownRecord as unknown:
        print(f"palaver archive: {unknown}")
        return 1
    print(f"{any_id} is in the store again.")
    return 0


async def _migrate(store: Store, database: Database, options: argparse.Namespace) -> int:
    await database.migrate()
    print(f"The schema is {await database.revision()}.")
    return 0


_Verb = Callable[[Store, Database, argparse.Namespace], Awaitable[int]]
_VERBS: Final[dict[str, tuple[_Verb, str]]] = {
    "status": (_status, "say how much the archive has, and how much it lacks"),
    "verify": (_verify, "compare all of it with what the store still has; exits 1 if there is a fault"),
    "backfill": (_backfill, "have workers archive what ended before there was an archive"),
    "restore": (_restore, "bring a run or a conversation back into the store"),
    "migrate": (_migrate, "bring the schema to that of this version, which workers do by themselves"),
}


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="palaver archive", description="The archive at PALAVER_ARCHIVE_URL.")
    verbs = parser.add_subparsers(dest="verb", title="commands", required=True)
    for name, (_, about) in _VERBS.items():
        verb = verbs.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        if name == "restore":
            verb.add_argument("id", metavar="ID", help="of a run or a conversation")
    options = parser.parse_args(arguments)
    with refusing():
        url = archive_url()
        if url is None:
            raise ConfigurationError("PALAVER_ARCHIVE_URL is not set: there is no archive")
        database = Database.of(url)
        try:
            return asyncio.run(_run(_VERBS[options.verb][0], database, options))
        except (ArchiveAway, ArchiveRefused) as error:
            raise ConfigurationError(str(error)) from None


async def _run(verb: _Verb, database: Database, options: argparse.Namespace) -> int:
    try:
        async with Store.connect(settings()) as store:
            return await verb(store, database, options)
    finally:
        await database.close()


if __name__ == "__main__":
    run_program(main)
