"""Wheels of this version and of the one before, each in an environment that borrows all that they need."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

from deploy.environments import borrow
from tests.pages import ROOT

BEFORE: Final = "e921fdac"
"""What this version is upgraded from: the main of 2026-11-29, as nothing has been released; then the last one's tag."""
ALONE: Final = ("--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "--quiet")


def run(*command: object, cwd: Path = ROOT) -> str:
    """What a command prints."""
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, env=outside(), timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def outside(**more: str) -> dict[str, str]:
    """The environment of a user who has no checkout."""
    ours = ("PALAVER_", "PYTHON", "PYTEST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    told = {name: os.environ[name] for name in ("PALAVER_CI_DATA_DIR",) if name in os.environ}
    return {**kept, **told, **more}


def has_history(commit: str = BEFORE) -> bool:
    """Whether git has that commit here: an sdist and a shallow clone have not."""
    asked = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True).returncode == 0


def wheel_of(source: Path, folder: Path) -> Path:
    """The wheel that is built of a folder or of an sdist."""
    run(sys.executable, "-m", "pip", "wheel", *ALONE, "--wheel-dir", folder, source)
    (made,) = folder.glob("palaver-*.whl")
    return made


def wheel_of_commit(commit: str, folder: Path) -> Path:
    """The wheel of a commit."""
    tar = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(tar)) as packed:
        packed.extractall(folder / "source", filter="data")
    return wheel_of(folder / "source", folder)


def borrowing(wheel: Path, folder: Path) -> Path:
    """The programs of a new environment with a wheel; what that needs is the environment's of the tests."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        folder / "bin" / "python",
        "install",
        "--no-deps",
        "--no-index",
        "--quiet",
        wheel,
    )
    borrow(folder)
    return folder / "bin"
