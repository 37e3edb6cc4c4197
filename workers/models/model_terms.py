"""What providers' entries say about calls of a model, without the means to make one: a tools worker has no more."""

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
    """How agents' models are called, in this process."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = providers

    def provider(self, agent: AgentSpec) -> Provider | None:
        """Who is asked for the agent; None if this worker has no such provider."""
        if agent.endpoint is not None and agent.provider == agent.endpoint.name:
            return _inline(agent.endpoint)
        return self._providers.get(agent.provider)

    def protocol(self, agent: AgentSpec) -> ModelProtocol:
        """How the agent's model is spoken to. No call is made of a provider that this worker has not."""
        provider = self.provider(agent)
        return CHAT_COMPLETIONS if provider is None else protocol_of(provider)

    def settings(self, agent: AgentSpec, *, plain: bool) -> CallSettings:
        """What the provider's entry says about a call; one that is ``plain`` is no part of a conversation."""
        provider = self.provider(agent)
        if provider is None:
            return CallSettings()
        thinking = None if plain and provider.thinking != "off" else provider.thinking
        limit, newer = provider.max_output_tokens, provider.max_completion_tokens
        return CallSettings(provider.caches and not plain, thinking, limit, newer)

    def max_tool_calls(self, agent: AgentSpec) -> int:
        """How many tool calls an answer to the agent may have."""
        provider = self.provider(agent)
        return limit_of("tool_calls") if provider is None else provider.max_tool_calls

    def price(self, agent: AgentSpec) -> Price | None:
        """What the agent's model costs; None if nobody said."""
        provider = self.provider(agent)
        return None if provider is None else provider.price(agent.model_name)
