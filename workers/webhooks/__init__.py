"""Deliveries to webhooks: the bodies that are sent, their signatures, and what an answer means (ADR 0118)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from palaver.config.settings import Settings
from palaver.config.webhook_file import load_webhooks
from palaver.store import Store


def chores(settings: Settings, store: Store) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """The chore that delivers; none for a worker that leaves it to others. What delivers is loaded once there is a
    webhook.

    Raises:
        ConfigurationError: something is wrong with the operator's file of webhooks.
    """
    if not settings.deliver_webhooks:
        return []
    file = load_webhooks(settings.webhooks)
    if not settings.sealer and file is None:
        # Without the key nobody makes one, and what others made cannot be signed here.
        return []

    async def deliver() -> None:
        if file is None:
            await store.deliveries.until_wanted()
        from .deliverer import Deliverer

        await Deliverer(store, settings, file=file).run()

    return [deliver]
