"""Keys that a provider refused: this worker leaves the provider to those whose key it may take.

Who fails in milliseconds takes most of a queue. So a worker whose key is refused says so in its report, and gives its
steps to neighbours that can call the provider. If there are none, the step fails like any whose key is refused: at
once, with what the provider said.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from palaver.config.providers import Provider
from palaver.steps.leases import Lease
from palaver.steps.verdicts import Postpone
from palaver.store.fleet.fleet import Fleet
from palaver.vocabulary.lifecycle import WaitReason
from palaver.vocabulary.step_kinds import MODEL

log = logging.getLogger("palaver.workers.models.refused_keys")

_LEFT_ALONE: Final = 60.0
"""Seconds until the provider is tried again: an account may be put right. Another key needs a restart."""
_LONGEST: Final = 600.0
"""Seconds that a step waits for a neighbour who does not take it."""
_SOONEST: Final = 0.1
_LATEST: Final = 5.0
_SHARE: Final = 0.25
"""A step waits again for this share of the time that it has waited, within the two bounds before, in seconds."""


class RefusedKeys:
    """The providers that refuse the key of this worker."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = providers
        self._until: dict[str, float] = {}

    @property
    def codes(self) -> tuple[str, ...]:
        """As a run's ``waiting`` and the worker's ``lacks`` name them."""
        return tuple(_code(name) for name in self._until if self.refuses(name))

    def refuses(self, provider: str) -> bool:
        """Tell whether the provider refused the key of this worker a moment ago."""
        return self._until.get(provider, 0.0) > time.monotonic()

    def note_refusal(self, provider: str) -> bool:
        """The provider refused the key. Whether that is news; an endpoint that came with a run is none of ours."""
        if provider not in self._providers:
            return False
        news = not self.refuses(provider)
        self._until[provider] = time.monotonic() + _LEFT_ALONE
        if news:
            log.warning(
                "the provider %s refuses %s of this worker: for %.0f s its steps go to workers whose key it may take",
                provider, self._key(provider), _LEFT_ALONE,
            )  # fmt: skip
        return news

    def note_answer(self, provider: str) -> None:
        """The provider took the key."""
        self._until.pop(provider, None)

    def named(self, provider: str, worker: str) -> str:
        """A sentence on whose key was refused; empty if it has none."""
        entry = self._providers.get(provider)
        return f"Worker {worker} called with {self._key(provider)}." if entry and entry.api_key_env else ""

    def _key(self, provider: str) -> str:
        variable = self._providers[provider].api_key_env
        return f"the key in {variable}" if variable else "no key"

    async def pass_on(self, fleet: Fleet, worker: str, lease: Lease) -> Postpone | None:
        """Gives a step up for a neighbour that can call its provider; None if this worker's key is not refused, or
        no other worker's is better: then the provider says what is wrong."""
        provider, waited = lease.agent.provider, lease.lacking_for
        if not lease.kind.asks_model or not self.refuses(provider) or waited > _LONGEST:
            return None
        neighbours = await fleet.workers()
        if not any(
            provider in other.providers and MODEL.queue in other.queues and other.id != worker and not other.draining
            for other in neighbours
        ):
            return None
        return Postpone(min(max(_SOONEST, waited * _SHARE), _LATEST), _code(provider), WaitReason.NO_WORKER)


def _code(provider: str) -> str:
    return f"refused_key:{provider}"
