"""Mutants of schedules and batches: each breaks one promise of ADR 0118, and the test that is named must say
so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_LUA: Final = "features/schedules/lua/"
_TICKS: Final = "features/schedules/tests/contract/test_schedules.py"
_TICK_KILLS: Final = "features/schedules/tests/unit/test_schedule_kills.py"
_CELLS: Final = "features/batches/tests/unit/test_api_batches.py"


def _mutant(name: str, file: str, old: str, new: str, test: str) -> TestedMutant:
    return TestedMutant(name, test, Change(file, old, new))


MUTANTS: Final = by_name(
    _mutant(
        "a tick that is submitted under no key",
        "features/schedules/scheduler.py",
        "(await begin(self._backend, submission, caller, key=_key(claimed), voices=voices)).run_id",
        "(await begin(self._backend, submission, caller, voices=voices)).run_id",
        _TICK_KILLS,
    ),
    _mutant(
        "a tick that is settled without a claim",
        f"{_LUA}settle_tick.lua",
        "if CLAIM ~= args.claim then return reply.stale_claim() end\n",
        "",
        _TICKS,
    ),
    _mutant(
        "a tick whose order changes while it is carried out",
        f"{_LUA}claim_tick.lua",
        "'tick', 'tick_order', 'last'",
        "'tick', 'order', 'last'",
        _TICKS,
    ),
    _mutant(
        "an hour that comes twice, and so does a daily tick",
        "features/schedules/times.py",
        "            if at > moment:\n",
        "            if at != moment:\n",
        "features/schedules/tests/unit/test_schedule_times.py",
    ),
    _mutant(
        "cells that are submitted before they are written",
        "features/batches/runner.py",
        "advance(claimed, begun=begun, ended=ended)):\n                return",
        "advance(claimed, ended=ended)):\n                return\n"
        "            claimed.flight.update((each.cell, each) for each in begun)",
        _CELLS,
    ),
    _mutant(
        "workers that go by no policy",
        "palaver/operations/planning_rules.py",
        'OperatorPolicy.model_validate(found["policy"])',
        "OperatorPolicy()",
        "tests/unit/test_planning_rules.py",
    ),
    _mutant(
        "a batch without a window",
        "features/batches/runner.py",
        "room = claimed.order.head.window - len(claimed.flight) + len(ended)",
        "room = claimed.order.head.window",
        _CELLS,
    ),
)
