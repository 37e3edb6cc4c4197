"""Second persons, who approve what another one asked for: those who asked have to be told from them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from palaver.errors import FieldError
from palaver.operations.backend import Caller
from palaver.schemas.models import AgentSpec


def nameless_faults(agent: AgentSpec, caller: Caller, writers: Collection[str] = ()) -> Iterator[FieldError]:
    """Yield the fault of an agent if a second person has to approve calls of it, or of one below it, and no person
    can be told from the caller, or from those who wrote it: one of them has no name."""
    if caller.identity and "" not in writers:
        return
    if any(each.approvals.second_person for each in _all_of(agent)):
        why = "cannot be had: the caller has no key with a name, so no other person can be told from it"
        if caller.identity:
            why = (
                "cannot be had: who put the agent on the server had no key with a name. Remove it, and put it again "
                "with one that has"
            )
        yield FieldError("/agent/approvals/second_person", "second_person_required", why)


def _all_of(agent: AgentSpec) -> Iterator[AgentSpec]:
    yield agent
    for subagent in agent.subagents.values():
        yield from _all_of(subagent.agent)
