"""The keys of the limits that a model call is under: that of its provider, and that of the model there."""

from __future__ import annotations

from typing import NamedTuple

from palaver.schemas.models import AgentSpec


class LimitKeys(NamedTuple):
    """The keys of both, as the store knows them."""

    provider: str
    model: str


def limit_keys_of(agent: AgentSpec, model: str = "") -> LimitKeys:
    """Return the keys for the agent's model, or for another ``model`` of its own.

    An endpoint that came with an agent has those of its scheme, host and port: its provider is called by the host
    alone, and what one caller got wrong, such as the port, is no outage of the others'. They are listed with that
    provider, as keys of its models are.
    """
    model = model or agent.model
    provider, _, name = model.partition("/")
    endpoint = agent.endpoint
    if endpoint is None or provider != endpoint.name:
        return LimitKeys(provider, model)
    return LimitKeys(f"{provider}/@{endpoint.origin}", f"{provider}/@{endpoint.origin}/{name}")
