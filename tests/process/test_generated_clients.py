"""Clients that others' generators make of the API's document: a program of each compiles, and does what it says.

``make check-clients`` runs this: generators come from package indexes, into folders of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.pages import ROOT
from tests.process.cluster import Cluster

pytestmark = [pytest.mark.process, pytest.mark.chaos]

PROGRAMS: Final = ROOT / "tests" / "clients"
GENERATORS: Final = Path(sys.prefix) / "clients" / "bin"
SAID: Final = ['calls calculator {"expression": "1 + 1"}', "completed without an error", "1"]


def _run(folder: Path, *command: object, environment: Mapping[str, str] = os.environ) -> str:
    """What a command prints."""
    done = subprocess.run(
        [*map(str, command)], cwd=folder, capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _says(cluster: Cluster, folder: Path, *command: object) -> None:
    said = _run(folder, *command, environment={**os.environ, "PALAVER_URL": cluster.stack.url}).splitlines()
    assert [line.replace('{"expression":"1 + 1"}', '{"expression": "1 + 1"}') for line in said] == SAID


def test_a_program_in_typescript(cluster: Cluster, tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("THE TYPESCRIPT CLIENT IS NOT CHECKED: there is no npm; install Node.js 20 or newer")
    (tmp_path / "openapi.json").write_text(json.dumps(cluster.http.get("/openapi.json").json()))
    for name in ("package.json", "package-lock.json", "tsconfig.json", "program.ts"):
        shutil.copy(PROGRAMS / name, tmp_path)
    _run(tmp_path, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    _run(tmp_path, "npx", "--no-install", "openapi-typescript", "openapi.json", "--output", "schema.d.ts")
    _run(tmp_path, "npx", "--no-install", "tsc", "--project", ".")
    _says(cluster, tmp_path, "node", "program.js")


def test_a_program_in_python(cluster: Cluster, tmp_path: Path) -> None:
    if not (GENERATORS / "openapi-python-client").exists():
        pytest.skip("THE PYTHON CLIENT IS NOT CHECKED: there is no generator; make check-clients installs it")
    (tmp_path / "openapi.json").write_text(json.dumps(cluster.http.get("/openapi.json").json()))
    shutil.copy(PROGRAMS / "program.py", tmp_path)
    found = {**os.environ, "PATH": f"{GENERATORS}{os.pathsep}{os.environ['PATH']}"}
    options = ("--path", "openapi.json", "--meta", "none", "--output-path", "palaver_api", "--fail-on-warning")
    _run(tmp_path, "openapi-python-client", "generate", *options, environment=found)
    # The generator's own part is not strict; its models, its calls and the program are.
    checked = ("program.py", "palaver_api/models", "palaver_api/api")
    _run(tmp_path, GENERATORS / "mypy", "--strict", "--follow-imports=silent", *checked)
    _says(cluster, tmp_path, GENERATORS / "python", "program.py")
