"""Webhooks: made, changed, listed and removed; their deliveries, listed and made again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from palaver.errors import FieldError, Refused
from palaver.operations.acting import check_sees_installation
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.schemas.webhooks import DeliveryPage, MadeWebhook, ReplayResult, WebhookInfo, WebhookState
from palaver.store.fleet.turns import MOST_SHOWN
from palaver.vocabulary.ids import tenant_of
from palaver.vocabulary.limits import count_exceeded, limit_of
from palaver.vocabulary.webhooks import DeliveryState

from .addresses import webhook_fault
from .backlog import WebhookBacklogs
from .bodies import ReplayRequest, WebhookChange, WebhookRequest
from .deliveries import Deliveries
from .webhooks import Webhooks, WebhookSecret


async def create_webhook(backend: Backend, request: WebhookRequest, caller: Caller) -> MadeWebhook:
    """Make a webhook of the caller's tenant.

    Raises:
        Refused: nothing is sent to such an address; ``no_secret_key``.
        StateConflict: ``webhooks_full``, ``tenant_erased``.
        NotDurable, StoreUnavailable: it was not made, or not safely.
    """
    _check_url(backend, request.url)
    made = await within_deadline(
        backend.store.part(Webhooks).create(
            caller.tenant,
            request.url,
            types=request.types,
            format=request.format,
            description=request.description,
            by=caller.name,
        )
    )
    return _with_secret(made)


async def list_webhooks(backend: Backend, caller: Caller) -> Sequence[WebhookInfo]:
    """Return the webhooks of the caller's tenant, the oldest first."""
    return await within_deadline(backend.store.part(Webhooks).list(caller.tenant))


async def read_webhook(backend: Backend, webhook_id: str) -> WebhookInfo:
    """Return a webhook. Raises Refused: there is none, for this caller."""
    return await within_deadline(backend.store.part(Webhooks).get(webhook_id))


async def change_webhook(backend: Backend, webhook_id: str, change: WebhookChange) -> WebhookInfo:
    """Change a webhook.

    Raises:
        Refused: there is none, for this caller; nothing is sent to such an address; ``webhook_of_file``.
        NotDurable, StoreUnavailable: it was not changed, or not safely.
    """
    if change.url is not None:
        _check_url(backend, change.url)
    return await within_deadline(backend.store.part(Webhooks).change(webhook_id, change))


async def rotate_webhook(backend: Backend, webhook_id: str, overlap: int) -> MadeWebhook:
    """Make a new secret of a webhook. The one before signs beside it for ``overlap`` seconds.

    Raises:
        Refused: there is none, for this caller; ``webhook_of_file``; ``no_secret_key``.
        NotDurable, StoreUnavailable: it was not made, or not safely.
    """
    return _with_secret(await within_deadline(backend.store.part(Webhooks).rotate(webhook_id, overlap)))


async def remove_webhook(backend: Backend, webhook_id: str) -> None:
    """Forget a webhook and all of its deliveries.

    Raises:
        Refused: there is none, for this caller; ``webhook_of_file``.
        NotDurable, StoreUnavailable: it may be there still.
    """
    await within_deadline(backend.store.part(Webhooks).remove(webhook_id))


async def list_deliveries(
    backend: Backend, webhook_id: str, *, state: DeliveryState | None, limit: int, cursor: str | None
) -> DeliveryPage:
    """Return deliveries of a webhook, the newest first.

    Raises:
        Refused: there is no such webhook, for this caller; ``invalid_cursor``.
    """
    if len(cursor or "") > limit_of("cursor"):
        count_exceeded("cursor")
        raise Refused("invalid_cursor", "The cursor is longer than any that a list of deliveries gave.")
    return await within_deadline(
        backend.store.part(Deliveries).page(webhook_id, state=state, limit=limit, cursor=cursor)
    )


async def replay_deliveries(backend: Backend, webhook_id: str, request: ReplayRequest) -> ReplayResult:
    """Make deliveries again that have ended: those that are named, or those of a time.

    Raises:
        Refused: there is no such webhook, for this caller; it says neither, or both.
    """
    named, since = request.deliveries, request.since
    if (named is None) == (since is None):
        raise Refused.of_faults([FieldError("/deliveries", "missing", "name deliveries, or give a time in `since`")])
    deliveries = backend.store.part(Deliveries)
    if named is not None:
        return await within_deadline(deliveries.replay(webhook_id, named))
    assert since is not None
    times = [("since", since), ("until", request.until)]
    if faults := [
        FieldError(f"/{name}", "timezone_aware", "needs a time zone")
        for name, time in times
        if time is not None and time.tzinfo is None
    ]:
        raise Refused.of_faults(faults)
    return await within_deadline(deliveries.replay_range(webhook_id, since, request.until, request.state))


async def read_webhooks(backend: Backend) -> list[WebhookState]:
    """Return webhooks that have something to be sent, that fail, or that are off: those first that wait longest, 100 at
    most.

    Raises:
        Refused: ``operators_only``.
    """
    check_sees_installation()
    store = backend.store
    known = await within_deadline(store.part(WebhookBacklogs).read(limit_of("webhooks_measured")))
    shown = [each for each in known if each.pending or each.state != "on"][:MOST_SHOWN]
    if not shown:
        return []
    names = {tenant.tag: tenant.name for tenant in await within_deadline(store.tenants.list())}
    return [
        WebhookState(
            id=each.id,
            tenant=names.get(tag := tenant_of(each.id), tag),
            pending=each.pending,
            due_seconds=round(each.due_for, 3),
            failing_since=each.failing_since,
            off_because=each.off,
        )
        for each in shown
    ]


def _check_url(backend: Backend, url: str) -> None:
    if why := webhook_fault(url, backend.settings.webhook_hosts):
        raise Refused.of_faults([FieldError("/url", "address_not_allowed", why)])


def _with_secret(made: WebhookSecret) -> MadeWebhook:
    return MadeWebhook(**made.webhook.model_dump(), secret=made.secret)


async def in_queues(backend: Backend) -> Mapping[str, Sequence[WebhookState]]:
    """Return what `GET /v1/queues` says of webhooks. Raises as `read_webhooks`."""
    return {"webhooks": await read_webhooks(backend)}
