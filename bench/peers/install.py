"""`python -m bench.peers.install`: install the peers, each in an environment of its own below that of Palaver.

About 700 MB, from PyPI and, for Restate's server, from npm, with the hashes that are locked here. One that cannot be
installed is left out of the comparison, which says so. Celery alone needs nothing that Palaver has not.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.asked import BenchError
from deploy.environments import Environment
from deploy.lock import PEERS, pins

_SERVER: Final = "node_modules/@restatedev/restate-server-linux-{machine}/bin/restate-server"
_MACHINES: Final = ("x64", "arm64")


@dataclass(frozen=True, slots=True)
class Installed:
    """What a peer runs in."""

    name: str
    sources: tuple[str, ...] = ()

    @property
    def environment(self) -> Environment:
        """Its environment, installed or not."""
        return Environment(f"peers/{self.name}", PEERS / f"{self.name}.txt", self.sources)

    def program(self, name: str = "python") -> str:
        """A program of it.

        Raises:
            BenchError: it is not installed.
        """
        python = self.environment.python
        if python is None:
            raise BenchError(f"not installed: python -m bench.peers.install {self.name}")
        return str(python.with_name(name))

    def version(self, package: str) -> str:
        """The version that is locked."""
        return pins((PEERS / f"{self.name}.txt").read_text())[package].partition("==")[2].split()[0]

    @property
    def packages(self) -> Path:
        """The folder of what is installed there."""
        return next(Path(self.program()).parent.parent.glob("lib/python*/site-packages"))


AGENT_FRAMEWORK: Final = Installed("agent-framework")
"""Of `bench.refund` alone."""
DATABRICKS: Final = Installed("databricks")
"""Of `bench.peers.takeover` alone."""
DBOS: Final = Installed("dbos")
LANGGRAPH: Final = Installed("langgraph", ("forbiddenfruit",))
RESTATE: Final = Installed("restate")
_OF_PEERS: Final = (DBOS, LANGGRAPH, RESTATE)
ALL: Final = (AGENT_FRAMEWORK, DATABRICKS, DBOS, LANGGRAPH, RESTATE)


def restate_server() -> str:
    """The program.

    Raises:
        BenchError: it is not installed.
    """
    for machine in _MACHINES:
        found = _server_folder() / _SERVER.format(machine=machine)
        if found.exists():
            return str(found)
    raise BenchError("its server is not installed: python -m bench.peers.install restate")


def server_version() -> str:
    """Of Restate's server."""
    package = json.loads((PEERS / "restate-server" / "package.json").read_text())
    return str(next(iter(package["optionalDependencies"].values())))


def _server_folder() -> Path:
    return Path(sys.prefix) / "peers" / "restate-server"


def _install_restate_server() -> None:
    shutil.copytree(PEERS / "restate-server", _server_folder(), dirs_exist_ok=True)
    command = ("npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts")
    subprocess.run(command, check=True, cwd=_server_folder())
    restate_server()


def main() -> None:
    """Install what is named, or what `bench.peers` measures, unless it is there."""
    names = sys.argv[1:] or [each.name for each in _OF_PEERS]
    for each in ALL:
        if each.name not in names:
            continue
        try:
            if each.environment.python is None:
                print(f"installing {each.name} (once, about a minute)", flush=True)
                each.environment.install(sys.executable)
            if each is RESTATE:
                _install_restate_server()
        except (BenchError, FileNotFoundError, subprocess.CalledProcessError) as error:
            print(f"bench: {each.name} could not be installed: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
