"""Keys of named agents.

The agents of a tenant share a hash tag, which ends with ``:`` and the tag of the tenant if it has one.

{palaver:agents}:names      hash    for the name of each agent its newest version                      no TTL
{palaver:agents}:agent:<name> hash  its versions     none while it is there; TTL when it is removed: 400 days
{palaver:agents}:passing    zset    keys of those that were removed, as above; the default tenant has none
{palaver:agents}:erasure    hash    what was erased of them: none is put any more                      TTL: a day
"""

from __future__ import annotations


def agents(tenant: str) -> str:
    """The names of a tenant's agents."""
    return f"{_agents_of(tenant)}:names"


def agent_versions(tenant: str, name: str) -> str:
    """The versions of one of them."""
    return f"{_agents_of(tenant)}:agent:{name}"


def agents_passing(tenant: str) -> str:
    """The keys of agents that were removed."""
    return f"{_agents_of(tenant)}:passing"


def agents_erasure(tenant: str) -> str:
    """The counts of what was erased of a tenant's agents."""
    return f"{_agents_of(tenant)}:erasure"


def _agents_of(tenant: str) -> str:
    return f"{{palaver:agents:{tenant}}}" if tenant else "{palaver:agents}"
