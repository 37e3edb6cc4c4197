"""Webhooks and their deliveries."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from starlette.responses import Response

from api.http.answers import answer
from api.http.audit import detail
from api.http.queries import Number, Query
from api.kit.signatures import InPath
from api.native.dialect import NATIVE
from api.native.links import location_of, next_page
from palaver.operations import Backend, Caller
from palaver.schemas.fields import Strict
from palaver.schemas.webhooks import DeliveryPage, MadeWebhook, ReplayResult, WebhookInfo, WebhookList
from palaver.vocabulary.webhooks import DeliveryState

from . import keeping
from .bodies import ReplayRequest, WebhookChange, WebhookRequest
from .terms import OVERLAP

WebhookId = Annotated[str, InPath("The webhook's id.", look=lambda backend, id, _: keeping.read_webhook(backend, id))]
_CHANGING: Final = ("webhook_not_found", "webhook_of_file", "not_durable")


class SecretRotation(Strict):
    """The way to replace a webhook's secret by a new one."""

    overlap: int = Field(default=OVERLAP, ge=0, le=7 * OVERLAP)
    """Seconds for which the old one signs beside the new one; 0: not any more."""


_DEFAULT: Final = SecretRotation.model_construct()


class DeliveriesQuery(Query):
    """The deliveries to list."""

    state: DeliveryState | None = Field(default=None, description="Only those of this state.")
    limit: Number = Field(default=50, ge=1, le=200, description="Deliveries on a page.")
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before.")


@NATIVE.route(
    "POST",
    "/v1/webhooks",
    scope="webhooks:write",
    tag="webhooks",
    summary="Make a webhook",
    examples={
        "all events": {"url": "https://example.org/palaver"},
        "for OpenAI's client": {"url": "https://example.org/openai", "format": "openai"},
        "what needs a person": {
            "url": "https://example.org/alerts",
            "types": ["run.failed", "run.expired", "run.action_required", "webhook.disabled"],
        },
    },
    answers={201: ("Made. `secret` is shown this once; `Location` is the webhook.", MadeWebhook)},
    problems=("webhooks_full", "no_secret_key", "tenant_erased", "not_durable"),
)
async def create_webhook(backend: Backend, caller: Caller, body: WebhookRequest) -> Response:
    """It hears of runs that are submitted from now on. Events are signed as Standard Webhooks says."""
    made = await keeping.create_webhook(backend, body, caller)
    detail(webhook=made.id)
    return answer(made, 201, location_of(f"/v1/webhooks/{made.id}"))


@NATIVE.route(
    "GET",
    "/v1/webhooks",
    scope="webhooks:write",
    tag="webhooks",
    summary="List the webhooks",
    answers={200: ("The webhooks, the oldest first.", WebhookList)},
)
async def list_webhooks(backend: Backend, caller: Caller) -> Response:
    """Each with the numbers of its deliveries, and whether it is on."""
    return answer(WebhookList(data=[*await keeping.list_webhooks(backend, caller)]))


@NATIVE.route(
    "GET",
    "/v1/webhooks/{webhook_id}",
    scope="webhooks:write",
    tag="webhooks",
    summary="Read a webhook",
    answers={200: ("The webhook, without its secrets.", WebhookInfo)},
    problems=("webhook_not_found",),
)
async def read_webhook(backend: Backend, webhook_id: WebhookId) -> Response:
    """Read how it fares, and what it hears of."""
    return answer(await keeping.read_webhook(backend, webhook_id))


@NATIVE.route(
    "PATCH",
    "/v1/webhooks/{webhook_id}",
    scope="webhooks:write",
    tag="webhooks",
    summary="Change a webhook",
    examples={"turn it on again": {"enabled": True}, "fewer events": {"types": ["run.failed"]}},
    answers={200: ("The webhook as it is now.", WebhookInfo)},
    problems=_CHANGING,
)
async def change_webhook(backend: Backend, webhook_id: WebhookId, body: WebhookChange) -> Response:
    """A field that is left out stays as it is. Deliveries that are pending go to the new address."""
    return answer(await keeping.change_webhook(backend, webhook_id, body))


@NATIVE.route(
    "POST",
    "/v1/webhooks/{webhook_id}/rotate",
    scope="webhooks:write",
    tag="webhooks",
    summary="Replace a webhook's secret",
    examples={"within an hour": {"overlap": 3600}},
    answers={200: ("The webhook with its new `secret`, which is shown this once.", MadeWebhook)},
    problems=(*_CHANGING, "no_secret_key"),
)
async def rotate_webhook(backend: Backend, webhook_id: WebhookId, body: SecretRotation = _DEFAULT) -> Response:
    """Both sign each event until `overlap` seconds are over: receivers take the new one when they are ready."""
    return answer(await keeping.rotate_webhook(backend, webhook_id, body.overlap))


@NATIVE.route(
    "DELETE",
    "/v1/webhooks/{webhook_id}",
    scope="webhooks:write",
    tag="webhooks",
    summary="Remove a webhook",
    answers={204: ("It is gone, with all of its deliveries.", None)},
    problems=_CHANGING,
)
async def remove_webhook(backend: Backend, webhook_id: WebhookId) -> Response:
    """Pending deliveries are not sent any more; an attempt that is under way may arrive yet."""
    await keeping.remove_webhook(backend, webhook_id)
    return Response(status_code=204)


@NATIVE.route(
    "GET",
    "/v1/webhooks/{webhook_id}/deliveries",
    scope="webhooks:write",
    tag="webhooks",
    summary="List the deliveries of a webhook",
    answers={200: ("A page of deliveries, the newest first; `Link` has the next.", DeliveryPage)},
    problems=("webhook_not_found", "invalid_cursor"),
)
async def list_deliveries(backend: Backend, webhook_id: WebhookId, query: DeliveriesQuery) -> Response:
    """Each with its attempts: when, how long, the status, and the first KiB of the answer."""
    page = await keeping.list_deliveries(backend, webhook_id, state=query.state, limit=query.limit, cursor=query.cursor)
    return answer(page, headers=next_page(f"/v1/webhooks/{webhook_id}/deliveries", query, cursor=page.next_cursor))


@NATIVE.route(
    "POST",
    "/v1/webhooks/{webhook_id}/replay",
    scope="webhooks:write",
    tag="webhooks",
    summary="Make deliveries again",
    examples={
        "one": {"deliveries": ["msg_00b3k9q1f7n4x2m8c6v5z0a1s2_7"]},
        "all that failed since": {"since": "2026-11-26T18:00:00Z"},
    },
    answers={200: ("They are pending again, with the same ids.", ReplayResult)},
    problems=("webhook_not_found",),
)
async def replay_deliveries(backend: Backend, webhook_id: WebhookId, body: ReplayRequest) -> Response:
    """Make deliveries again: those that are named, or those of a time. None is made that is pending already."""
    return answer(await keeping.replay_deliveries(backend, webhook_id, body))
