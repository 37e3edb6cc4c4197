"""Webhooks: make, change, list and remove them, and look at what was delivered."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Any

from palaver.client.aio.paging import pages
from palaver.client.aio.transport import ApiTransport
from palaver.client.answers import deliveries_of, made_webhook_of, replayed_of, webhook_of, webhooks_of
from palaver.client.errors import NotFound
from palaver.client.requests import tenants
from palaver.client.requests.request import moment
from palaver.schemas.webhooks import MadeWebhook, ReplayResult, WebhookDelivery, WebhookInfo
from palaver.vocabulary.webhooks import DeliveryState, Format


class AsyncWebhooks:
    """The methods of the client about webhooks, which need a key with the scope ``webhooks:write``."""

    _transport: ApiTransport

    async def create_webhook(
        self,
        url: str,
        *,
        types: Sequence[str] | None = None,
        format: Format = "palaver",
        description: str | None = None,
    ) -> MadeWebhook:
        """Make a webhook, which hears of runs that are submitted from now on: of all events, or of those of some
        ``types``. Its ``secret`` is shown this once.

        Raises:
            Conflict: there are too many (``webhooks_full``).
            Unprocessable: nothing is sent to such an address; ``no_secret_key``, the server keeps no secrets.
            APIError, ConnectionFailed: it was not made, or its secret is unknown.
        """
        body: dict[str, Any] = {
            "url": url,
            "types": None if types is None else list(types),
            "format": format,
            "description": description,
        }
        return made_webhook_of(await self._transport.call(tenants.create_webhook(body)))

    async def webhooks(self) -> tuple[WebhookInfo, ...]:
        """The webhooks of your tenant, the oldest first.

        Raises:
            APIError, ConnectionFailed: they cannot be had.
        """
        return webhooks_of(await self._transport.call(tenants.list_webhooks()))

    async def webhook(self, webhook_id: str) -> WebhookInfo:
        """A webhook, and how it fares.

        Raises:
            NotFound: there is no such webhook.
            APIError, ConnectionFailed: it cannot be had.
        """
        return webhook_of(await self._transport.call(tenants.get_webhook(webhook_id)))

    async def change_webhook(self, webhook_id: str, **changes: Any) -> WebhookInfo:
        """Change the ``url``, the ``types`` (None: all) or the ``description`` of a webhook, or whether it is
        ``enabled``.

        Raises:
            NotFound: there is no such webhook.
            APIError, ConnectionFailed: it was not changed; `Unprocessable` names the fields.
        """
        return webhook_of(await self._transport.call(tenants.change_webhook(webhook_id, changes)))

    async def rotate_webhook(self, webhook_id: str, overlap: int | None = None) -> MadeWebhook:
        """Make a new secret of a webhook; the old one signs beside it for ``overlap`` seconds, else for a day.

        Raises:
            NotFound: there is no such webhook.
            APIError, ConnectionFailed: it was not made, or it is unknown.
        """
        return made_webhook_of(await self._transport.call(tenants.rotate_webhook(webhook_id, overlap)))

    async def delete_webhook(self, webhook_id: str) -> None:
        """Remove a webhook and all of its deliveries.

        Raises:
            NotFound: there is no such webhook.
            APIError, ConnectionFailed: it may be there still.
        """
        try:
            await self._transport.call(tenants.delete_webhook(webhook_id))
        except NotFound as error:
            # One that is not there after a lost answer was removed by that request.
            if not error.perhaps_done:
                raise

    async def deliveries(
        self, webhook_id: str, *, state: DeliveryState | None = None
    ) -> AsyncGenerator[WebhookDelivery, None]:
        """The deliveries of a webhook, the newest first, page by page as you iterate.

        Raises:
            NotFound: there is no such webhook.
            APIError, ConnectionFailed: a page cannot be had.
        """
        ask = partial(tenants.list_deliveries, webhook_id, state)
        async with aclosing(pages(self._transport, ask)) as delivery_pages:
            async for page, response in delivery_pages:
                for delivery in deliveries_of(page, response):
                    yield delivery

    async def replay_deliveries(
        self,
        webhook_id: str,
        deliveries: Sequence[str] | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        state: DeliveryState | None = "failed",
    ) -> ReplayResult:
        """Make deliveries again: those with these ids, or those of a time that are in a ``state`` (None: any).

        Raises:
            NotFound: there is no such webhook.
            ValueError: a time has no zone.
            APIError, ConnectionFailed: they are not made, as far as anybody knows.
        """
        body: dict[str, Any] = {"deliveries": list(deliveries)} if deliveries is not None else {"state": state}
        times = {"since": moment("since", since), "until": moment("until", until)}
        body |= {name: time for name, time in times.items() if time is not None}
        return replayed_of(await self._transport.call(tenants.replay_deliveries(webhook_id, body)))
