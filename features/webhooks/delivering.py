"""The loop of workers that delivers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from palaver.config.settings import Settings
from palaver.store import Store


def loops(settings: Settings, store: Store, worker: str) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """The loop that delivers; none for a worker that leaves it to others. What delivers is loaded once there is a
    webhook.

    Raises:
        ConfigurationError: something is wrong with the operator's file of webhooks.
    """
    if not settings.deliver_webhooks:
        return []
    if not settings.sealer and settings.webhooks is None:
        # Without the key none is made, and what others made cannot be signed here.
        return []
    from .deliveries import Deliveries
    from .webhook_file import load_webhooks

    file = load_webhooks(settings.webhooks)

    async def deliver() -> None:
        if file is None:
            await store.part(Deliveries).until_wanted()
        from .deliverer import Deliverer

        await Deliverer(store, settings, file=file).run()

    return [deliver]
