"""Installs the generations of OpenHands' client, each into an environment of its own: ``make openhands-clients``.

They need Python 3.12 or 3.13. Where there is none, nothing is installed, and the tests that need one are skipped aloud;
``PALAVER_REQUIRE_OPENHANDS=1`` (CI) makes an error of that.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
GENERATIONS: Final = ("1.58.2", "1.7.3")
REQUIRED: Final = os.environ.get("PALAVER_REQUIRE_OPENHANDS") == "1"
_VERSIONS: Final = ("3.13", "3.12")
_PIP: Final = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
_LOCKED: Final = ("--require-hashes", "--only-binary", ":all:")


def interpreter(generation: str) -> Path | None:
    """The Python that has this generation, if it is installed as it is locked now."""
    folder = _folder(generation)
    stamp = folder / ".installed"
    if stamp.exists() and stamp.read_text() == _locked(generation):
        return folder / "bin" / "python"
    return None


def install(generation: str, python: str) -> None:
    """Install what is locked for a generation.

    Raises:
        CalledProcessError: the index lacks something, or cannot be reached.
    """
    folder = _folder(generation)
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    wanted = HERE / f"constraints-{generation}.txt"
    subprocess.run([folder / "bin" / "python", *_PIP, *_LOCKED, "--requirement", wanted], check=True)
    (folder / ".installed").write_text(_locked(generation))


def find_python() -> str | None:
    """A Python that the clients run on: on the path, or one of pyenv's."""
    for name in _candidates():
        # A shim of pyenv is there for each version, and fails unless that one is chosen.
        found = subprocess.run([name, "-c", "import venv"], capture_output=True, check=False)
        if found.returncode == 0:
            return name
    return None


def _candidates() -> Iterator[str]:
    for version in _VERSIONS:
        if found := shutil.which(f"python{version}"):
            yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for version in _VERSIONS:
        yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True))


def _folder(generation: str) -> Path:
    return Path(sys.prefix) / "openhands" / generation


def _locked(generation: str) -> str:
    return hashlib.sha256((HERE / f"constraints-{generation}.txt").read_bytes()).hexdigest()


def main() -> None:
    """Install what is not there yet."""
    missing = [each for each in GENERATIONS if interpreter(each) is None]
    if not missing:
        return
    python = find_python()
    if python is None:
        print(
            "OPENHANDS' CLIENTS ARE NOT TESTED: they need Python 3.12 or 3.13, on the path or in pyenv", file=sys.stderr
        )
        sys.exit(REQUIRED)
    for each in missing:
        print(f"installing OpenHands' client {each} (once, about a minute)", flush=True)
        try:
            install(each, python)
        except subprocess.CalledProcessError:
            print(f"OPENHANDS' CLIENT {each} IS NOT TESTED: it could not be installed", file=sys.stderr)
            sys.exit(REQUIRED)


if __name__ == "__main__":
    main()
