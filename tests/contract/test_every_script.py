"""What is held on every kind of server calls every script there is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from palaver.store.scripting.additions import all_scripts
from tests.contract.called import FILE
from tests.pages import ROOT

_BY_THE_API: Final = {"leave_batch", "remove_batch"}
"""Those that features/batches/tests/unit/test_api_batches.py calls, and none of the contract."""


@pytest.mark.process
@pytest.mark.chaos
def test_the_files_that_are_held_everywhere_call_every_script(tmp_path: Path) -> None:
    called = tmp_path / "called"
    folders = ("tests/contract", *sorted(map(str, ROOT.glob("features/*/tests/contract"))))
    options = ("-q", "-p", "tests.contract.called", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *folders, *options, "-m", "everywhere and not slow"],
        env={**os.environ, FILE: str(called)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert {script.name for script in all_scripts()} - _BY_THE_API - {*called.read_text().split()} == set()
