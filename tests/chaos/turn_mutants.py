"""Mutants of the tenants' turns: each breaks one promise of ADR 0094, and the test that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_LUA: Final = "palaver/store/scripting/lua/"
_TURNS: Final = f"{_LUA}_turns.lua"
_QUEUE: Final = f"{_LUA}_queue.lua"
_DELIVER: Final = f"{_LUA}_deliver.lua"
_CONTRACT: Final = "tests/contract/test_fair_order.py"


def _mutant(name: str, file: str, old: str, new: str) -> TestedMutant:
    return TestedMutant(name, _CONTRACT, Change(file, old, new))


MUTANTS: Final = by_name(
    _mutant(
        "a turn that is free",
        _TURNS,
        "time + time_of(owner, cost_in_advance(",
        "time + 0 * time_of(owner, cost_in_advance(",
    ),
    _mutant("a step that is charged twice", _TURNS, "cost - before)", "cost)"),
    _mutant("a charge without a backlog", _TURNS, "  if not step.in_turn then return end\n", ""),
    _mutant("tokens that are free", _TURNS, "1 + tokens / 1000, redis", "1, redis"),
    _mutant("turns that an idle tenant saves up", _TURNS, "math.max(now, before or 0)", "before or 0"),
    _mutant("one weight for all", _TURNS, "cost / (caps_of(SHARD, owner, Cap.WEIGHT) or 1)", "cost"),
    _mutant("a window without an end", _TURNS, "return delivered >= Queue.WINDOW end", "return false end"),
    TestedMutant(
        "tools that are delivered like models",
        "tests/contract/test_turns_of_tools.py",
        Change(_TURNS, "queue == Queue.MODEL and Queue.WINDOW or math.min", "Queue.WINDOW or math.min"),
    ),
    _mutant("a cap that nobody asks for", _TURNS, "return steps >= math", "return false and steps >= math"),
    _mutant(
        "steps in flight for ever", _TURNS, "if more < 0 then redis.call('ZREM'", "if false then redis.call('ZREM'"
    ),
    _mutant("nobody who is let go at his cap", _TURNS, "        land(owner)\n", ""),
    _mutant("a claim that makes no room", f"{_LUA}claim.lua", "    opened[step.queue] = CLAIM\n", ""),
    _mutant(
        "who waits for a turn is passed by",
        f"{_LUA}_in_place.lua",
        "ipairs({ ready(queue), held_back(queue) })",
        "ipairs({ ready(queue) })",
    ),
    _mutant("the backlog of another", _DELIVER, "hold_back(OWNER, step.queue", "hold_back('', step.queue"),
    _mutant("what is late before what is urgent", _DELIVER, "2 * PRIORITY +", "-2 * PRIORITY +"),
    _mutant(
        "a cancelled step that has its turn",
        f"{_LUA}_step.lua",
        "      drop_held_back(OWNER, step.queue, member(name))\n",
        "",
    ),
    _mutant("first come, first served at a provider", _QUEUE, "return math.max(served, last) +", "return seen +"),
    _mutant("one weight for all at a provider", _QUEUE, "/ args.weight +", "+"),
)
