"""Environments of their own, for programs of others that need another Python than Palaver has: below that of Palaver,
each with what is locked for it and nothing else.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import Final

VERSIONS: Final = ("3.13", "3.12")
"""Of Python; the first that is found is taken."""
_PIP: Final = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
_LOCKED: Final = ("--require-hashes", "--only-binary", ":all:")


@dataclass(frozen=True, slots=True)
class Environment:
    """One of them; ``constraints`` is the file that `make lock` wrote for it; what is in ``sources`` has no wheel."""

    name: str
    constraints: Path
    sources: tuple[str, ...] = ()

    @property
    def python(self) -> Path | None:
        """Its interpreter, if it is installed as it is locked now."""
        stamp = self._folder / ".installed"
        if stamp.exists() and stamp.read_text() == self._locked:
            return self._folder / "bin" / "python"
        return None

    def install(self, python: str) -> None:
        """Install what is locked, with this interpreter.

        Raises:
            CalledProcessError: the index lacks something, or cannot be reached.
        """
        subprocess.run([python, "-m", "venv", "--clear", self._folder], check=True)
        built = [word for name in self.sources for word in ("--no-binary", name)]
        wanted = (*built, "--requirement", str(self.constraints))
        subprocess.run([self._folder / "bin" / "python", *_PIP, *_LOCKED, *wanted], check=True)
        (self._folder / ".installed").write_text(self._locked)

    @property
    def _folder(self) -> Path:
        return Path(sys.prefix) / self.name

    @property
    def _locked(self) -> str:
        return hashlib.sha256(self.constraints.read_bytes()).hexdigest()


def find_python() -> str | None:
    """A Python that such programs run on: on the path, or one of pyenv's."""
    for name in _candidates():
        # A shim of pyenv is there for each version, and fails unless that one is chosen.
        found = subprocess.run([name, "-c", "import venv"], capture_output=True, check=False)
        if found.returncode == 0:
            return name
    return None


def _candidates() -> Iterator[str]:
    for version in VERSIONS:
        if found := shutil.which(f"python{version}"):
            yield found
    pyenv = Path(environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for version in VERSIONS:
        yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True))


def borrow(folder: Path, *more: Path) -> None:
    """Let the environment in `folder` find, behind its own packages, those of this one, and what is in `more`."""
    own = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    # A line of a .pth is a folder of modules; .pth files in there, such as that of our checkout, are not read.
    Path(own, "borrowed.pth").write_text("".join(f"{path}\n" for path in (sysconfig.get_path("purelib"), *more)))
