"""Packages of npm for a referee, kept below the environment: nothing is asked of the registry once they are there."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.process.node import NodeProgram, find_node


@dataclass(frozen=True, slots=True)
class NodePackages:
    """The packages that ``source`` locks: a folder with a package.json, and a package-lock.json without addresses."""

    name: str
    """For people, and of the folder below the environment."""
    source: Path

    def install(self) -> None:
        """Install what is locked, unless it is there.

        Raises:
            FileNotFoundError: there is no Node.js.
            CalledProcessError: the registry lacks something, or cannot be reached.
        """
        if self._stamp.exists() and self._stamp.read_text() == self._locked:
            return
        print(f"installing {self.name} (once, about a minute)", flush=True)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(self.source / name, self._folder)
        node, npm = find_node()
        command = [str(node), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(command, cwd=self._folder, env=_environment(node), check=True, timeout=300)
        self._stamp.write_text(self._locked)

    def program(self) -> NodeProgram:
        """The folder with them, for a program. Skips the test if they are not installed as they are locked now."""
        if not self._stamp.exists() or self._stamp.read_text() != self._locked:
            pytest.skip(f"{self.name.upper()} IS NOT CHECKED: make check-referees installs it")
        node, _ = find_node()
        return NodeProgram(node, self._folder, _environment(node))

    @property
    def _folder(self) -> Path:
        return Path(sys.prefix) / "referees" / self.name

    @property
    def _stamp(self) -> Path:
        return self._folder / ".installed"

    @property
    def _locked(self) -> str:
        return hashlib.sha256((self.source / "package-lock.json").read_bytes()).hexdigest()


def _environment(node: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}
