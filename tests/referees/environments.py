"""Packages of PyPI for a referee, in an environment below ours: nothing is asked of the index once they are there."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

_PIP: Final = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes")


@dataclass(frozen=True, slots=True)
class PythonPackages:
    """The packages that ``source`` locks, a folder with a constraints.txt."""

    name: str
    """For people, and of the environment."""
    source: Path

    def install(self) -> None:
        """Install what is locked, unless it is there.

        Raises:
            CalledProcessError: the index lacks something, or cannot be reached.
        """
        if self._stamp.exists() and self._stamp.read_text() == self._digest:
            return
        print(f"installing {self.name} (once, about a minute)", flush=True)
        venv.create(self._folder, clear=True, with_pip=True)
        command = [str(self._python), *_PIP, "--only-binary", ":all:", "--requirement", str(self._locked)]
        subprocess.run(command, check=True, timeout=600)
        self._stamp.write_text(self._digest)

    def python(self) -> str:
        """The interpreter with them. Skips the test if they are not installed as they are locked now."""
        if not self._stamp.exists() or self._stamp.read_text() != self._digest:
            pytest.skip(f"{self.name.upper()} IS NOT CHECKED: make check-referees installs it")
        return str(self._python)

    @property
    def _folder(self) -> Path:
        return Path(sys.prefix) / "referees" / self.name

    @property
    def _python(self) -> Path:
        return self._folder / "bin" / "python"

    @property
    def _stamp(self) -> Path:
        return self._folder / ".installed"

    @property
    def _locked(self) -> Path:
        return self.source / "constraints.txt"

    @property
    def _digest(self) -> str:
        return hashlib.sha256(self._locked.read_bytes()).hexdigest()
