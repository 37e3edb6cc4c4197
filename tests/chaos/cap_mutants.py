"""Mutants of the caps of tenants: each breaks one promise of ADR 0094, and the test that is named must say so.

    python -m tests.chaos.cap_mutants [NAME …]

Seconds for each.
"""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name, play_named

_LUA: Final = "palaver/store/scripting/lua/"
_MONEY: Final = "tests/contract/test_money_caps.py"
_RATES: Final = "tests/contract/test_rate_caps.py"
_CAPS: Final = "tests/contract/test_caps.py"


def _mutant(name: str, test: str, file: str, old: str, new: str) -> TestedMutant:
    return TestedMutant(name, test, Change(file, old, new))


CAP_MUTANTS: Final = by_name(
    _mutant(
        "what a lost call may cost stays reserved",
        _MONEY,
        f"{_LUA}_overdue.lua",
        "  attempt_over(name, step, SpanOutcome.LOST)\n",
        "  attempt_over(name, step, SpanOutcome.LOST) step.reserved = nil\n",
    ),
    _mutant(
        "what is reserved goes twice",
        _MONEY,
        f"{_LUA}_step.lua",
        "  if step.reserved then reserve(step, 0) end\n",
        "  if step.reserved then reserve(step, 0) reserve({ reserved = step.reserved or 1 }, 0) end\n",
    ),
    _mutant(
        "a reservation at the expense of the default tenant",
        _MONEY,
        f"{_LUA}_step.lua",
        "redis.call('HINCRBY', meters(), OWNER .. 'reserved', more)",
        "redis.call('HINCRBY', meters(), 'reserved', more)",
    ),
    _mutant(
        "a call that is asked for again and reserves again",
        _MONEY,
        f"{_LUA}reserve.lua",
        "if step.reserves == args.call then return reply.reserved() end\n",
        "",
    ),
    _mutant(
        "what is under way counts for nothing",
        _MONEY,
        f"{_LUA}_allowance.lua",
        "local reserved, today, found = (meters[1] or 0) - free,",
        "local reserved, today, found = 0,",
    ),
    _mutant(
        "a month that nobody looks at",
        _MONEY,
        f"{_LUA}_allowance.lua",
        "  if per_month then\n",
        "  if false then\n",
    ),
    _mutant(
        "a month of thirty-one days",
        _MONEY,
        f"{_LUA}_allowance.lua",
        "ends = first_of_month(first + 31) * DAY",
        "ends = (first + 31) * DAY",
    ),
    _mutant(
        "an unknown cost that is none",
        _MONEY,
        f"{_LUA}_usage.lua",
        "used.cost or step.reserved or 0",
        "used.cost or 0",
    ),
    _mutant(
        "who waits for a cap and is not found",
        _MONEY,
        f"{_LUA}_deliver.lua",
        "  if is_held(step) then hold(name, step) end\n",
        "",
    ),
    _mutant(
        "a paused run that waits for a cap",
        _MONEY,
        f"{_LUA}_step.lua",
        "    if is_held(step) then let_go(name, step) end\n",
        "",
    ),
    _mutant(
        "one more in the queue",
        _CAPS,
        f"{_LUA}submit.lua",
        ">= most_queued / parts_of(OWNER) then",
        "> most_queued / parts_of(OWNER) then",
    ),
    _mutant(
        "another's queue",
        _CAPS,
        f"{_LUA}submit.lua",
        "redis.call('ZCARD', PREFIX .. OWNER .. list_of(RunStatus.QUEUED))",
        "redis.call('ZCARD', PREFIX .. list_of(RunStatus.QUEUED))",
    ),
    _mutant(
        "tokens that are charged for ever",
        _RATES,
        f"{_LUA}_usage.lua",
        "used = used + (taken - charged) * 60000",
        "used = used + math.max(0, taken - charged) * 60000",
    ),
    _mutant(
        "requests that all have the same turn",
        _RATES,
        f"{_LUA}reserve.lua",
        "math.ceil(at + behind - NOW)",
        "math.ceil(at - NOW)",
    ),
)


if __name__ == "__main__":
    play_named(CAP_MUTANTS)
