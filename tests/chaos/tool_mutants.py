"""Mutants of tools on a loop: each breaks one promise of ADR 0005, and the test that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_CONTAINMENT: Final = "tests/unit/test_containment.py"

MUTANTS: Final = by_name(
    TestedMutant(
        "a call that is waited for for ever when its time is up",
        _CONTAINMENT,
        Change(
            "workers/sources/containment.py",
            "async with asyncio.timeout(tool.timeout + GRACE):",
            "async with asyncio.timeout(None):",
        ),
    ),
    TestedMutant(
        "a call that is waited for for ever when it is cancelled",
        _CONTAINMENT,
        Change(
            "workers/sources/containment.py",
            "await asyncio.wait([task], timeout=GRACE)",
            "await asyncio.wait([task])",
        ),
    ),
    TestedMutant(
        "a result that a cancel throws away",
        _CONTAINMENT,
        Change("workers/sources/containment.py", "return task.result()", "raise"),
    ),
    TestedMutant(
        "a loop that is held up for ever",
        "tests/unit/test_loop_watch.py",
        Change("workers/loops/keeper.py", "exit=True", "exit=False"),
    ),
)
