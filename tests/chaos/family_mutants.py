"""Mutants of agents as tools: each breaks one promise of ADR 0097, and the test that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_LUA: Final = "palaver/store/scripting/lua/"
_CALLS: Final = "tests/contract/test_agent_calls.py"


def _mutant(name: str, file: str, old: str, new: str, test: str = _CALLS) -> TestedMutant:
    return TestedMutant(name, test, Change(file, old, new))


MUTANTS: Final = by_name(
    _mutant(
        "a child that nobody calls on",
        f"{_LUA}_family.lua",
        "  if step.child and not step.child_ended then add_due(step.child .. '/' .. RunDue.PARENT) end\n",
        "",
    ),
    _mutant(
        "a call that the end of its run does not wake",
        f"{_LUA}_family.lua",
        "    if step.state == StepState.LATER then add_due(parent.run_id .. '/' .. parent.step) end\n",
        "",
    ),
    _mutant(
        "a call that waits for a run that has ended meanwhile",
        f"{_LUA}postpone.lua",
        "if step.child_ended then\n",
        "if false then\n",
    ),
    _mutant(
        "a child under a lease that is lost",
        f"{_LUA}_begun_by.lua",
        " or step.fence ~= parent.fence then return 'stale' end",
        " then return 'stale' end",
    ),
    _mutant(
        "a child that was deleted and is begun again",
        f"{_LUA}_begun_by.lua",
        "  if step.child then return 'gone' end\n",
        "",
    ),
    _mutant(
        "a child that costs its parent nothing",
        f"{_LUA}_family.lua",
        "  add_usage(run, unpriced, names, used)\n  if not kept[2]",
        "  if not kept[2]",
    ),
    _mutant(
        "a child that goes on while its parent is paused",
        f"{_LUA}_heed.lua",
        "    pause(above[3] == 'now')\n",
        "",
    ),
    _mutant(
        "a child that is cancelled at once where what is under way was to finish",
        f"{_LUA}_heed.lua",
        "    local mode = above[2] == CancelMode.GRACEFUL and CancelMode.GRACEFUL or CancelMode.NOW\n",
        "    local mode = CancelMode.NOW\n",
    ),
    _mutant(
        "an agent below that the policy does not see",
        "palaver/operations/admission/governing/trees.py",
        "policy.rules_for(tenant, node.agent) for node in",
        "policy.rules_for(tenant, node.agent) if node is tree else {} for node in",
        "tests/unit/test_api_subagents.py",
    ),
)
"""By their names."""
