"""A peer that has a PostgreSQL, and one process with its API and its agents."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from bench.asked import BenchError
from bench.peers.install import Installed
from bench.peers.peer import Peer
from bench.peers.postgres import Postgres
from bench.rig import Rig


class OnPostgres(Peer):
    """Such a peer: what it is installed as, its program, and the scheme of its database's address."""

    installed: ClassVar[Installed]
    program: ClassVar[str]
    """A module."""
    scheme: ClassVar[str]

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self._python = self.installed.program()
        self._database = Postgres(self.installed.packages, self.surroundings())

    async def begin(self) -> None:
        try:
            await asyncio.to_thread(self._database.make)
        except BenchError as error:
            raise BenchError(f"{self.name}: {error}") from None
        self.run_program("postgres", self._database.command, self.surroundings())
        await self._rig.until(self._database.is_up, "PostgreSQL answers")
        url = f"{self.scheme}://{self._database.address}"
        self.run_program("app", (self._python, "-m", self.program), self.surroundings(BENCH_DATABASE_URL=url))

    async def close(self) -> None:
        await super().close()
        self._database.remove()
