"""A process whose loop is held up ends, and says where; one whose loop goes round does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.waiting import PATIENCE

pytestmark = pytest.mark.process

PROGRAM = """
import asyncio, ctypes
from workers.loops.keeper import watched

async def main():
    async with watched(PATIENCE):
        HOLDS
    print("went on", flush=True)

asyncio.run(main())
"""


def play(holds: str, patience: float) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.replace("PATIENCE", str(patience)).replace("HOLDS", holds)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_code_that_keeps_pythons_lock_ends_its_process() -> None:
    ended = play("await asyncio.sleep(0); ctypes.PyDLL(None).sleep(40)", patience=0.2)
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr
    assert "in main" in ended.stderr


def test_a_loop_that_goes_round_is_left_alone_and_so_is_what_comes_after_it() -> None:
    ended = play("await asyncio.sleep(0.3)", patience=20)
    assert (ended.returncode, ended.stdout) == (0, "went on\n"), ended.stderr
