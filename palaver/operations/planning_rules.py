"""The rules that runs of planned work are admitted by: an API says them in the store, and workers go by them.

So a worker needs none of the settings of an API, and none of its keys; and a worker that was started with others takes
nothing on that no API would.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import orjson
from pydantic import SecretStr

from palaver.config.policy import OperatorPolicy
from palaver.config.providers import Provider
from palaver.config.settings import ApiKey, Settings
from palaver.errors import UNREADABLE, ConfigurationError, ErrorClass, classify
from palaver.operations.backend import Backend, Publishing, within_deadline
from palaver.operations.catalog import Catalog
from palaver.operations.measured import Measured
from palaver.steps.retry import RetryPolicy
from palaver.store import Store

_log: Final = logging.getLogger("palaver.planned")
_AGAIN: Final = 5.0
"""Seconds until the rules are said again, if that could not be done."""
_LOOK: Final = 60.0
"""Seconds between two looks whether the store has lost them."""
_SETTINGS: Final = frozenset(
    {
        *("inline_provider_hosts", "inline_mcp_hosts", "max_memory_percent", "max_queued", "max_runs"),
        *("retention", "run_deadline"),
    }
)
"""The settings among them: what an agent may name, and what is taken on."""


def rules_of(backend: Backend) -> bytes:
    """Return the rules of an API as JSON. No key and no password is in them."""
    settings = backend.settings
    return orjson.dumps(
        {
            "settings": settings.model_dump(mode="json", include=set(_SETTINGS)),
            "keys": [key.name for key in settings.api_keys],
            "keyed": settings.keyed,
            "policy": backend.policy.model_dump(mode="json", exclude_unset=True),
            "retry": {name: policy.dump() for name, policy in backend.policies.items()},
            "providers": {name: _without_secrets(provider) for name, provider in backend.providers.items()},
        }
    )


async def say_rules(backend: Backend) -> None:
    """Keep the rules of this API in the store, as soon as that takes them; and again, for ever, where it has lost
    them."""
    rules, said = rules_of(backend), False
    while True:
        try:
            await within_deadline(backend.store.planning.keep_rules(rules, again=said))
            said = True
        except Exception as error:
            if classify(error).error_class is not ErrorClass.STORAGE:
                raise
        await asyncio.sleep(_LOOK if said else _AGAIN)


class PlanningBackend:
    """The backend of planned work in a worker, by the rules as they are."""

    def __init__(self, store: Store, settings: Settings, publisher: Publishing) -> None:
        self._store = store
        self._settings = settings
        self._publisher = publisher
        self._rules: bytes | None = None
        self._backend: Backend | None = None

    async def now(self) -> Backend | None:
        """Return it; None if no API has said rules yet, or only a newer version can read them.

        Raises what Redis raises, and StoreUnavailable.
        """
        rules = await within_deadline(self._store.planning.rules())
        if rules != self._rules:
            self._rules, before, self._backend = rules, self._backend, None
            if before is not None:
                await before.close()
            if rules is not None:
                self._backend = self._read(rules)
        return self._backend

    def _read(self, rules: bytes) -> Backend | None:
        try:
            found = orjson.loads(rules)
            policies = {name: RetryPolicy.parse(policy, stored=True) for name, policy in found["retry"].items()}
            providers = {name: Provider.model_validate(each) for name, each in found["providers"].items()}
            policy, settings = OperatorPolicy.model_validate(found["policy"]), self._governed(found)
        except (*UNREADABLE, ConfigurationError) as error:
            _log.error("the rules of schedules and batches cannot be read here: %s", type(error).__name__)
            return None
        store = self._store.under(settings)
        return Backend(
            settings=settings,
            store=store,
            publisher=self._publisher,
            providers=providers,
            catalog=Catalog(store),
            policies=policies,
            policy=policy,
            measured=Measured(store, providers),
        )

    def _governed(self, found: Mapping[str, Any]) -> Settings:
        known = {name: tuple(each) if isinstance(each, list) else each for name, each in found["settings"].items()}
        keys = tuple(ApiKey(SecretStr(""), name) for name in found["keys"])
        return self._settings.model_copy(update={**known, "api_keys": keys, "require_keys": found["keyed"]})

    async def close(self) -> None:
        """Read no more."""
        if self._backend is not None:
            await self._backend.close()


def _without_secrets(provider: Provider) -> dict[str, Any]:
    table = provider.model_dump(mode="json", exclude_unset=True, exclude={"api_key_env"})
    place = urlsplit(provider.base_url)
    return {**table, "base_url": urlunsplit(place._replace(netloc=place.netloc.rpartition("@")[2]))}
