"""The client for TypeScript, and one that another's generator makes of the API's document: a program on each compiles,
and does what it says.

``make check-clients`` runs this: generators come from package indexes, into folders of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from api.app import create_app
from tests.pages import ROOT
from tests.process.cluster import Cluster
from tests.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos]

PROGRAMS: Final = ROOT / "tests" / "clients"
TYPED: Final = ("program", "follow")
PACKAGE: Final = ROOT / "clients" / "typescript"
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


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the TypeScript client, made from the document of the API as it is, and its tests passed."""
    if shutil.which("npm") is None:
        pytest.skip("THE TYPESCRIPT CLIENT IS NOT CHECKED: there is no npm; install Node.js 20 or newer")
    folder = tmp_path_factory.mktemp("clients") / "typescript"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns(*(PACKAGE / ".gitignore").read_text().split()))
    (folder / "openapi.json").write_text(json.dumps(create_app().openapi()))
    _run(folder, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    _run(folder, "npm", "run", "build")
    _run(folder, "npm", "test")
    for program in TYPED:
        shutil.copy(PROGRAMS / f"{program}.ts", folder)
    settings = {
        "extends": "./tsconfig.json",
        "compilerOptions": {"types": ["node"], "rootDir": ".", "outDir": ".", "declaration": False},
        "include": [],
        "files": [f"{program}.ts" for program in TYPED],
    }
    (folder / "programs.json").write_text(json.dumps(settings))
    _run(folder, "npx", "--no-install", "tsc", "--project", "programs.json")
    return folder


def test_a_program_in_typescript(cluster: Cluster, package: Path) -> None:
    _says(cluster, package, "node", "program.js")


def test_what_follows_in_typescript_sees_a_run_whole_while_the_api_is_killed(cluster: Cluster, package: Path) -> None:
    run_id = cluster.submit("say-60+rate-20")
    environment = {**os.environ, "PALAVER_URL": cluster.stack.url}
    output = package / "followed"

    def lines() -> list[str]:
        return output.read_text().splitlines()

    def has_seen(events: int) -> bool:
        return len(lines()) >= events

    with output.open("w") as written:
        following = subprocess.Popen(["node", "follow.js", run_id], cwd=package, stdout=written, env=environment)
    try:
        for seen in (3, 10):
            eventually(partial(has_seen, seen), why="events of the run")
            cluster.kill("api")
            cluster.start("api")
        assert following.wait(timeout=PATIENCE) == 0
    finally:
        following.kill()
        following.wait()
    *deltas, message, ended = (line.split(" ", 2) for line in lines())
    assert ended == ["ended", "completed"]
    assert message[0] == "message"
    assert {kind for kind, *_ in deltas} == {"delta"}
    numbers = [int(number) for _, number, _ in deltas]
    assert numbers == sorted(set(numbers)), "an event came twice, or late"
    assert "".join(text for *_, text in deltas) == " ".join(message[1:])


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
