"""DBOS on PostgreSQL."""

from __future__ import annotations

import asyncio

from bench.asked import BenchError
from bench.peers.install import DBOS as INSTALLED
from bench.peers.peer import WithRuns
from bench.peers.postgres import Postgres
from bench.rig import Rig


class Dbos(WithRuns):
    """One process with its API in it, and PostgreSQL."""

    name = "DBOS"
    completed = "SUCCESS"

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self._python = INSTALLED.program()
        self._database = Postgres(INSTALLED.packages, self.surroundings())

    @property
    def about(self) -> str:
        return (
            f"dbos {INSTALLED.version('dbos')} on PostgreSQL {self._database.version} with `synchronous_commit=off`, "
            "so that a commit waits for the disk as little as Palaver's `everysec` does. A run is a workflow of "
            "asyncio steps, one for each model call and each tool call, started in the process that was asked: "
            "FastAPI, uvicorn and uvloop, 50 connections to the database. A queue of DBOS's would have a run wait for "
            "up to a second. What is pending is recovered at the start; steps that call the model are preemptible."
        )

    async def begin(self) -> None:
        try:
            await asyncio.to_thread(self._database.make)
        except BenchError as error:
            raise BenchError(f"{self.name}: {error}") from None
        self.run_program("postgres", self._database.command, self.surroundings())
        await self._rig.until(self._database.is_up, "PostgreSQL answers")
        app = (self._python, "-m", "bench.peers.apps.dbos_app")
        self.run_program("app", app, self.surroundings(BENCH_DATABASE_URL=f"postgresql://{self._database.address}"))

    async def close(self) -> None:
        await super().close()
        self._database.remove()
