"""The providers of an agent's models: they are configured, and a worker can call them."""

from __future__ import annotations

from collections.abc import Iterator

from palaver.errors import FieldError
from palaver.schemas.endpoints import INLINE

from ..faults import Fault, UnknownName, listed
from ..tree import AgentTree, pointer_of


def provider_faults(tree: AgentTree, callable_ones: frozenset[str] | None) -> Iterator[Fault]:
    """Yield the faults of the providers that the models of a tree's agent name."""
    models = tree.models
    for index, name in enumerate(tree.agent.models):
        where, provider = pointer_of(index), name.partition("/")[0]
        if provider == INLINE:
            yield FieldError(where, "unknown_provider", "is asked at an endpoint of the agent's own: give it one")
        elif provider not in models.providers:
            yield UnknownName(
                where, "unknown_provider", "names a provider that is not configured", provider, models.providers,
                nothing="none (see PALAVER_PROVIDERS)",
            )  # fmt: skip
        elif callable_ones and provider not in callable_ones:
            table = "PALAVER_INLINE_PROVIDER_HOSTS" if provider.startswith(f"{INLINE}:") else "PALAVER_PROVIDERS"
            why = f"their {table} lacks it, or they lack its key; they can call: {listed(sorted(callable_ones))}"
            yield FieldError(where, "unknown_provider", f"names a provider that no worker can call: {why}")
