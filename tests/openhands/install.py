"""Installs the generations of OpenHands' client, each into an environment of its own: ``make openhands-clients``.

They need Python 3.12 or 3.13. Where there is none, nothing is installed, and the tests that need one are skipped aloud;
``REQUIRE_OPENHANDS_CLIENTS=1`` (CI) makes an error of that.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from deploy.environments import Environment, find_python

HERE: Final = Path(__file__).resolve().parent
GENERATIONS: Final = ("1.58.2", "1.7.3")
REQUIRED: Final = os.environ.get("REQUIRE_OPENHANDS_CLIENTS") == "1"


def interpreter(generation: str) -> Path | None:
    """The Python that has this generation, if it is installed as it is locked now."""
    return _environment(generation).python


def _environment(generation: str) -> Environment:
    return Environment(f"openhands/{generation}", HERE / f"constraints-{generation}.txt")


def _import(generation: str) -> None:
    """Import what the tests do: compiled once, and not by each of several processes at the same time."""
    subprocess.run([str(interpreter(generation)), str(HERE / "driver.py")], stdin=subprocess.DEVNULL, check=True)


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
            _environment(each).install(python)
            _import(each)
        except subprocess.CalledProcessError:
            print(f"OPENHANDS' CLIENT {each} IS NOT TESTED: it could not be installed", file=sys.stderr)
            sys.exit(REQUIRED)


if __name__ == "__main__":
    main()
