"""The gates that a model call passes: that of its provider, and that of the model there."""

from __future__ import annotations

from typing import NamedTuple

from palaver.schemas.models import AgentSpec


class Gates(NamedTuple):
    """The names of both, as the store knows them."""

    provider: str
    model: str


def gates_of(agent: AgentSpec, model: str = "") -> Gates:
    """The gates of the agent's model, or of another ``model`` of its own.

    An endpoint that came with an agent has those of its scheme, host and port: its provider is called by the host
    alone, and what one caller got wrong, such as the port, is no outage of the others'. They are listed with that
    provider, as gates of its models are.
    """
    model = model or agent.model
    provider, _, name = model.partition("/")
    endpoint = agent.endpoint
    if endpoint is None or provider != endpoint.name:
        return Gates(provider, model)
    return Gates(f"{provider}/@{endpoint.origin}", f"{provider}/@{endpoint.origin}/{name}")
