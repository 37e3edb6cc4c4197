"""DBOS on PostgreSQL."""

from __future__ import annotations

from bench.peers.install import DBOS
from bench.peers.on_postgres import OnPostgres
from bench.peers.peer import WithRuns


class Dbos(OnPostgres, WithRuns):
    """One process with its API in it, and PostgreSQL."""

    name = "DBOS"
    completed = "SUCCESS"
    installed = DBOS
    program = "bench.peers.apps.dbos_app"
    scheme = "postgresql"

    @property
    def about(self) -> str:
        return (
            f"dbos {self.installed.version('dbos')} on PostgreSQL {self._database.version} with "
            "`synchronous_commit=off`, so that a commit waits for the disk as little as Palaver's `everysec` does. A "
            "run is a workflow of asyncio steps, one for each model call and each tool call, started in the process "
            "that was asked: FastAPI, uvicorn and uvloop. A queue of DBOS's would have a run wait for up to a second."
        )
