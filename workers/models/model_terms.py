"""The terms of model calls, as providers' entries set them, without the means to make a call: a tools worker has no
more."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from palaver.config.providers import Price, Provider
from palaver.schemas.models import AgentSpec
from palaver.vocabulary.limits import limit_of

from ..protocols import CHAT_COMPLETIONS, CallSettings, ModelProtocol, protocol_of

_inline = lru_cache(maxsize=500)(Provider.inline)
"""Endpoints that came with agents: the same is asked again and again, from several conversations."""


class ModelTerms:
    """The terms on which this process calls agents' models."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = providers

    def provider(self, agent: AgentSpec) -> Provider | None:
        """Return the provider of the agent's model; None if this worker has no such provider."""
        if agent.endpoint is not None and agent.provider == agent.endpoint.name:
            return _inline(agent.endpoint)
        return self._providers.get(agent.provider)

    def protocol(self, agent: AgentSpec) -> ModelProtocol:
        """Return the protocol of the agent's model; any, if this worker lacks the provider: then no call is made."""
        provider = self.provider(agent)
        return CHAT_COMPLETIONS if provider is None else protocol_of(provider)

    def settings(self, agent: AgentSpec, *, plain: bool) -> CallSettings:
        """Return the settings of a call, as the provider's entry has them; one that is ``plain`` is no part of a
        conversation."""
        provider = self.provider(agent)
        if provider is None:
            return CallSettings()
        thinking = None if plain and provider.thinking != "off" else provider.thinking
        limit, newer = provider.max_output_tokens, provider.max_completion_tokens
        return CallSettings(provider.caches and not plain, thinking, limit, newer)

    def max_tool_calls(self, agent: AgentSpec) -> int:
        """Return the number of tool calls that an answer to the agent may have at most."""
        provider = self.provider(agent)
        return limit_of("tool_calls") if provider is None else provider.max_tool_calls

    def price(self, agent: AgentSpec) -> Price | None:
        """Return the price of the agent's model; None if none is set."""
        provider = self.provider(agent)
        return None if provider is None else provider.price(agent.model_name)
