"""What nobody chose is not imported: neither a dialect, nor the console."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final

import pytest

from palaver.config.variables import DIALECTS as GROUP
from tests.feature_cases import CARRIED_OUT
from tests.pages import ROOT
from tests.waiting import PATIENCE

pytestmark = pytest.mark.process

DIALECTS: Final = {
    entry.name: entry.module.removeprefix("palaver.") for entry in entry_points(group=GROUP) if entry.name != "console"
}
"""The package of each dialect, by its name."""
GUESTS: Final = {*DIALECTS.values(), "mcp", "openai", "jsonschema", "jwt", "httpx"}
CHOICES: Final[Mapping[tuple[str, str], list[str]]] = {
    ("PALAVER_DIALECTS", "native"): [],
    **{("PALAVER_DIALECTS", name): [package] for name, package in DIALECTS.items()},
}
"""What an API is told, and which guests are there then."""
CONSOLE: Final[Mapping[tuple[str, str], bool]] = {
    ("PALAVER_CONSOLE", ""): False,
    ("PALAVER_CONSOLE", "false"): False,
    ("PALAVER_CONSOLE", "true"): True,
}
_PROGRAM: Final = """
import json, os, sys, api.app
for variable, chosen in json.loads(sys.argv[1]):
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
        continue
    os.environ[variable] = chosen
    api.app.create_app()
    print(json.dumps([variable, chosen, [*sys.modules]]), flush=True)
    os._exit(0)
"""
"""Makes an API as it is told for each choice, in a process of its own, from what all of them import."""


@pytest.fixture(scope="module")
def imported() -> Mapping[tuple[str, str], set[str]]:
    """All modules that there are then, by what was chosen."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps([*CHOICES, *CONSOLE])],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers = map(json.loads, done.stdout.splitlines())
    return {(variable, chosen): {*modules} for variable, chosen, modules in answers}


@pytest.mark.parametrize("choice", CHOICES, ids="=".join)
def test_a_dialect_that_nobody_chose_is_not_imported(
    choice: tuple[str, str], imported: Mapping[tuple[str, str], set[str]]
) -> None:
    assert sorted(GUESTS & imported[choice]) == CHOICES[choice]


@pytest.mark.skipif("console" in CARRIED_OUT, reason="the console was carried out")
@pytest.mark.parametrize("choice", CONSOLE, ids="=".join)
def test_a_console_that_is_switched_off_is_not_imported(
    choice: tuple[str, str], imported: Mapping[tuple[str, str], set[str]]
) -> None:
    assert ("features.console" in imported[choice]) is CONSOLE[choice]
