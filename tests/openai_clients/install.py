"""Installs versions of OpenAI's client, each into a folder of its own beside the environment: ``make
check-openai``. What they need otherwise is in the environment already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
VERSIONS: Final = ("1.109.1", "2.0.0", "2.54.0", "3.0.0", "3.57.0")
_PIP: Final = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes")


def folder(version: str) -> Path:
    """The place of a version."""
    return Path(sys.prefix) / "openai" / version


def main() -> None:
    """Install what is not there yet."""
    for version in VERSIONS:
        if not folder(version).exists():
            locked = str(HERE / f"constraints-{version}.txt")
            subprocess.run(
                [sys.executable, *_PIP, "--only-binary", ":all:", "--target", str(folder(version)), "-r", locked],
                check=True,
            )


if __name__ == "__main__":
    main()
