"""A traceback that a test expects may be cut short by a kill; none that comes to its error is excused by that."""

from __future__ import annotations

import pytest

from tests.process.checks import _is_cut_short

FRAMES = '\n  File "a.py", line 1, in <module>\n    a()\n'
CHILD = "[2026-11-23 08:57:44,182: WARNING/ForkPoolWorker-3] outside a step: "


@pytest.mark.parametrize("error", ["ValueError: x", "KeyboardInterrupt", "a.b.Error:", "a.f.<locals>.Own: x"])
@pytest.mark.parametrize("before", ["", CHILD])
def test_one_that_comes_to_its_error_is_whole(error: str, before: str) -> None:
    assert not _is_cut_short(f"{FRAMES}{before}{error}\n[2026-11-23: INFO] Connected\n")


@pytest.mark.parametrize(
    "trace",
    [
        "\n",
        FRAMES,
        f"\n{CHILD}  File\n",
        f"{FRAMES}[2026-11-23 08:57:44,182: INFO/MainProcess] Connected to redis\n",
        f"{FRAMES}/usr/lib/celery/platforms.py:893: SecurityWarning: You're running the worker\n",
    ],
)
def test_one_that_ends_among_its_frames_is_cut_short(trace: str) -> None:
    assert _is_cut_short(trace)
