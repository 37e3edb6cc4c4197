"""Mutants of the caps of tenants: each breaks one promise of ADR 0094, and the test that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import by_name, tested

_LUA: Final = "palaver/store/scripting/lua/"
_MONEY: Final = "tests/contract/test_money_caps.py"
_RATES: Final = "tests/contract/test_rate_caps.py"
_CAPS: Final = "tests/contract/test_caps.py"

MUTANTS: Final = by_name(
    tested(
        "what a lost call may cost stays reserved",
        _MONEY,
        f"{_LUA}_overdue.lua",
        "  attempt_over(name, step, SpanOutcome.LOST)\n",
        "  attempt_over(name, step, SpanOutcome.LOST) step.reserved = nil\n",
    ),
    tested(
        "what is reserved goes twice",
        _MONEY,
        f"{_LUA}_step.lua",
        "  if step.reserved then reserve(step, 0) end\n",
        "  if step.reserved then reserve(step, 0) reserve({ reserved = step.reserved or 1 }, 0) end\n",
    ),
    tested(
        "a reservation at the expense of the default tenant",
        _MONEY,
        f"{_LUA}_step.lua",
        "redis.call('HINCRBY', meters(), OWNER .. 'reserved', more)",
        "redis.call('HINCRBY', meters(), 'reserved', more)",
    ),
    tested(
        "a call that is asked for again and reserves again",
        _MONEY,
        f"{_LUA}reserve.lua",
        "if step.reserves == args.call then return reply.reserved() end\n",
        "",
    ),
    tested(
        "what is under way counts for nothing",
        _MONEY,
        f"{_LUA}_allowance.lua",
        "local reserved, today, found = (meters[1] or 0) - free,",
        "local reserved, today, found = 0,",
    ),
    tested(
        "a month that nobody looks at",
        _MONEY,
        f"{_LUA}_allowance.lua",
        "  if per_month then\n",
        "  if false then\n",
    ),
    tested(
        "a month of thirty-one days",
        _MONEY,
        f"{_LUA}_allowance.lua",
        "ends = first_of_month(first + 31) * DAY",
        "ends = (first + 31) * DAY",
    ),
    tested(
        "an unknown cost that is none",
        _MONEY,
        f"{_LUA}_usage.lua",
        "used.cost or step.reserved or 0",
        "used.cost or 0",
    ),
    tested(
        "who waits for a cap and is not found",
        _MONEY,
        f"{_LUA}_deliver.lua",
        "  if is_held(step) then hold(name, step) end\n",
        "",
    ),
    tested(
        "a paused run that waits for a cap",
        _MONEY,
        f"{_LUA}_step.lua",
        "    if is_held(step) then let_go(name, step) end\n",
        "",
    ),
    tested(
        "one more in the queue",
        _CAPS,
        f"{_LUA}submit.lua",
        ">= most_queued / parts_of(OWNER) then",
        "> most_queued / parts_of(OWNER) then",
    ),
    tested(
        "another's queue",
        _CAPS,
        f"{_LUA}submit.lua",
        "redis.call('ZCARD', PREFIX .. OWNER .. list_of(RunStatus.QUEUED))",
        "redis.call('ZCARD', PREFIX .. list_of(RunStatus.QUEUED))",
    ),
    tested(
        "tokens that are charged for ever",
        _RATES,
        f"{_LUA}_usage.lua",
        "used = used + (taken - charged) * 60000",
        "used = used + math.max(0, taken - charged) * 60000",
    ),
    tested(
        "requests that all have the same turn",
        _RATES,
        f"{_LUA}reserve.lua",
        "math.ceil(at + behind - NOW)",
        "math.ceil(at - NOW)",
    ),
)
