"""Second persons, who approve what another one asked for: the caller has to be told from them."""

from __future__ import annotations

from collections.abc import Iterator

from palaver.errors import FieldError
from palaver.schemas.models import AgentSpec


def nameless_faults(agent: AgentSpec) -> Iterator[FieldError]:
    """Yield the fault of an agent if a second person has to approve calls of it, or of one below it. It has one if the
    caller has no name: nobody can be told from such a caller."""
    if any(each.approvals.second_person for each in _all_of(agent)):
        why = "cannot be had: the caller has no key with a name, and nobody can be told to be somebody else"
        yield FieldError("/agent/approvals/second_person", "second_person_required", why)


def _all_of(agent: AgentSpec) -> Iterator[AgentSpec]:
    yield agent
    for subagent in agent.subagents.values():
        yield from _all_of(subagent.agent)
