"""Agents that are kept, on the server or in an order: a secret is not kept with them."""

from __future__ import annotations

from collections.abc import Iterator

from palaver.errors import FieldError
from palaver.schemas.models import AgentSpec
from palaver.vocabulary.limits import count_exceeded, limit_of


def kept_faults(name: str, agent: AgentSpec) -> Iterator[FieldError]:
    """Yield the faults that an agent has only if it is to be kept on the server under that name."""
    if agent.name not in (None, name):
        yield FieldError("/agent/name", "validation_error", "is not the name in the path: leave it out")
    if agent.endpoint is not None and agent.endpoint.api_key is not None:
        why = "is not kept with an agent: set the provider up in PALAVER_PROVIDERS, or give the key with each run"
        yield FieldError("/agent/endpoint/api_key", "endpoint_not_allowed", why)
    if len(agent.model_dump_json().encode()) > limit_of("agent_bytes"):
        count_exceeded("agent_bytes")
        yield FieldError("/agent", "validation_error", f"has more than {limit_of('agent_bytes')} bytes as JSON")


def ordered_faults(agent: AgentSpec | str | None, pointer: str) -> Iterator[FieldError]:
    """Yield the faults that an agent at ``pointer`` has only if runs of it begin later: what is kept until then is not
    sealed."""
    if isinstance(agent, AgentSpec) and agent.endpoint is not None and agent.endpoint.api_key is not None:
        why = "is not kept with an order: set the provider up in PALAVER_PROVIDERS"
        yield FieldError(f"{pointer}/endpoint/api_key", "endpoint_not_allowed", why)
