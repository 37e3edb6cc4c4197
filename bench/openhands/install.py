"""Installs OpenHands' agent-server and its client for the comparison: ``make bench-openhands``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from deploy.environments import Environment, find_python

HERE: Final = Path(__file__).resolve().parent
VERSION: Final = "1.58.2"
"""The newer generation that the dialect is tested with."""
ENVIRONMENT: Final = Environment("openhands/agent-server", HERE / "constraints.txt")


def main() -> None:
    """Install it unless it is there."""
    if ENVIRONMENT.python is not None:
        return
    python = find_python()
    if python is None:
        sys.exit("bench: OpenHands' agent-server needs Python 3.12 or 3.13, on the path or in pyenv")
    print(f"installing OpenHands' agent-server {VERSION} (once, about two minutes)", flush=True)
    try:
        ENVIRONMENT.install(python)
    except subprocess.CalledProcessError:
        sys.exit("bench: OpenHands' agent-server could not be installed")


if __name__ == "__main__":
    main()
