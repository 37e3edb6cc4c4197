"""Mutants of the queues that tools name: each breaks one promise of ADR 0030, and the test that is named
must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_LUA: Final = "palaver/store/scripting/lua/"
_STEPS: Final = "palaver/store/steps/"


def _mutant(name: str, file: str, old: str, new: str) -> TestedMutant:
    return TestedMutant(name, "tests/contract/test_own_queues.py", Change(file, old, new))


MUTANTS: Final = by_name(
    _mutant("one queue for all tools", f"{_STEPS}settling.py", "step.queue or step.kind.queue", "step.kind.queue"),
    _mutant(
        "a worker that takes from any", f"{_LUA}claim.lua", "if not is_of_queues(step.queue) then", "if false then"
    ),
    _mutant("a name that others may have", f"{_LUA}_publish.lua", "Queue.OF_TOOLS .. queue)", "queue)"),
    _mutant(
        "a tenant that stays at his cap elsewhere",
        f"{_LUA}_turns.lua",
        "ipairs(redis.call('ZRANGE', capped_in(owner), 0, -1))",
        "ipairs({ Queue.MODEL, Queue.TOOL })",
    ),
    _mutant("a claim of what nobody takes", f"{_LUA}claim.lua", "  attend(name, step)\n", ""),
    _mutant("what is in no queue and lacks a worker", f"{_LUA}_step.lua", "    attend(name, step)\n", ""),
    _mutant("a wait for a worker without an end", f"{_LUA}attend.lua", "> 1000 * Limit.NO_WORKER then", "< 0 then"),
    _mutant(
        "a wait that is said once", f"{_LUA}attend.lua", "if not is_told() then wait_for", "if false then wait_for"
    ),
    _mutant("a backlog that is looked at in part", f"{_STEPS}due.py", "limit if len(held_back) == limit else 0", "0"),
    _mutant("queues without number", f"{_STEPS}queues.py", "if over > 0:", "if False:"),
)
