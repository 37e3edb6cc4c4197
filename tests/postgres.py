"""A PostgreSQL of our own: own folder and port, loopback only, ours to kill; nothing of it stays."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import pytest

from features.stack.child import ChildCommand
from features.stack.ports import HOST, free_port
from tests.waiting import eventually

_PROGRAMS: Final = Path("/usr/lib/postgresql")
"""Debian has a folder for each version there."""
_OURS: Final = "PALAVER_TEST_POSTGRES"
"""The variable with the folder of other programs."""
_START_WITHIN: Final = 120.0
_NOT_ROOT: Final = 65534
"""Its programs refuse to be root: they become the user that owns nothing."""
USER: Final = "palaver"
PASSWORD: Final = "a-secret-of-tests"
_SETTINGS: Final = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    # What a killed process has written stays without it.
    "fsync": "off",
    "jit": "off",
    "shared_buffers": "16MB",
    "max_connections": "40",
    "max_worker_processes": "2",
    "log_min_messages": "log",
    "restart_after_crash": "on",
}


def find_programs() -> Path | None:
    """The folder of PostgreSQL's programs; None where there are none."""
    if named := os.environ.get(_OURS):
        return Path(named)
    found = [path for path in _PROGRAMS.glob("*/bin") if (path / "postgres").exists() and (path / "initdb").exists()]
    return max(found, key=lambda path: float(path.parent.name), default=None)


class PostgresServer:
    """One server. Its data stay over `kill` and `start`; it ends with the process that started it.

    ``data`` is a folder to hold them, by default one of its own.
    """

    def __init__(self, data: Path | None = None, **settings: str) -> None:
        programs = find_programs()
        assert programs is not None, "PostgreSQL is not installed: apt-get install postgresql"
        self.folder = Path(tempfile.mkdtemp(prefix="palaver-postgres-"))
        self.data = (data or self.folder) / "data"
        self.port = free_port()
        self._as_user: tuple[str, ...] = ()
        if os.geteuid() == 0:
            ids = (f"--reuid={_NOT_ROOT}", f"--regid={_NOT_ROOT}", "--clear-groups")
            # A change of the user forgets that the process dies with its parent.
            self._as_user = ("setpriv", *ids, "--pdeathsig", "KILL")
            for place in {self.folder, self.data.parent}:
                os.chown(place, _NOT_ROOT, _NOT_ROOT)
        password = self.folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self._run(
            *(str(programs / "initdb"), "--pgdata", str(self.data), "--username", USER, "--pwfile", str(password)),
            *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"),
        )
        options = {**_SETTINGS, "port": str(self.port), **settings}
        self._server = ChildCommand(
            "postgres",
            (
                *self._as_user,
                *(str(programs / "postgres"), "-D", str(self.data)),
                *(word for name, value in options.items() for word in ("-c", f"{name}={value}")),
            ),
            environment={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
            log_path=self.folder / "postgres.log",
            ready=lambda server: "ready to accept" in server.output,
        )
        self._databases = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, database: str = "postgres", *, user: str = USER, password: str = PASSWORD) -> str:
        """The URL of a database of it."""
        return f"postgresql://{user}:{password}@{HOST}:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of an empty database of its own."""
        self._databases += 1
        name = f"archive{self._databases}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str, url: str | None = None) -> list[tuple[Any, ...]]:
        """Execute a statement as a superuser, in a transaction of its own, and return its rows."""
        import psycopg

        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    @property
    def running(self) -> bool:
        """True if it exists, paused or not."""
        return self._server.running

    @property
    def log(self) -> str:
        """Its output since its last start."""
        return self._server.output

    def start(self) -> None:
        """Start it, and return once it takes connections."""
        self._server.start()
        self._server.wait_until_ready(time.monotonic() + _START_WITHIN)

    def kill(self) -> None:
        """SIGKILL to all of its processes at once, as a crash of the machine, whose disk has what was written."""
        self._server.kill(signal.SIGKILL)

    def stop(self) -> None:
        """Shut it down; it ends the connections."""
        self._server.kill(signal.SIGINT)
        eventually(lambda: not self._server.running, within=_START_WITHIN)

    def pause(self) -> None:
        """SIGSTOP: connections stay open, and nothing answers."""
        self._server.kill(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo `pause`."""
        self._server.kill(signal.SIGCONT)

    def close(self) -> None:
        """End it, and remove its data."""
        if self.running:
            self.resume()
            # It takes its shared memory along, as it does not when it is killed.
            with suppress(AssertionError):
                self.stop()
        self._server.kill(signal.SIGKILL)
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, *command: str) -> None:
        done = subprocess.run((*self._as_user, *command), cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server; without its programs the test is skipped, and the summary says so."""
    if find_programs() is None:
        pytest.skip("POSTGRESQL IS NOT TESTED: its programs are not there; apt-get install postgresql")
    with PostgresServer() as server:
        yield server
