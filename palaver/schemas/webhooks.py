"""Webhooks as requests ask for them and answers show them. A secret is shown once, when it is made."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from palaver.schemas.fields import DataModel
from palaver.vocabulary.webhooks import DeliveryState, Format, OffReason


class SecretInfo(DataModel):
    """A secret that events are signed with, without the secret."""

    id: str
    created_at: datetime
    expires_at: datetime | None
    """It signs until then; null: until it is replaced."""


class WebhookInfo(DataModel):
    """A webhook."""

    id: str
    url: str
    types: tuple[str, ...] | None
    """Null: all."""
    format: Format
    description: str | None
    enabled: bool
    off_because: OffReason | None
    """Why nothing is sent to it."""
    secrets: list[SecretInfo]
    created_at: datetime
    created_by: str | None
    """The name of the key that made it; null without keys, or for one of the operator's file."""
    of_file: bool
    """True: it stands in the operator's file, and is changed there."""
    pending: int
    """Its deliveries that are to be made."""
    delivered: int
    """The number that was delivered, ever."""
    failed: int
    """The number that was given up."""
    dropped: int
    """The number that was not begun, because too many were pending."""
    failing_since: datetime | None
    """Since when every attempt has failed."""


class MadeWebhook(WebhookInfo):
    """A webhook with a secret that was just made."""

    secret: str = Field(repr=False)
    """The secret to check signatures with. It is shown this once."""


class WebhookList(DataModel):
    """The webhooks of a tenant, the oldest first."""

    data: list[WebhookInfo]


class DeliveryAttempt(DataModel):
    """An attempt of a delivery."""

    at: datetime
    latency_ms: int
    """The time that it took."""
    status: int | None
    """The status of the answer; null if there was none."""
    error: str | None
    """The reason of a failure, if not the status says it."""
    answer: str
    """The first KiB of the answer's body."""


class WebhookDelivery(DataModel):
    """An event and what became of it at one webhook."""

    id: str
    """The ``webhook-id`` of all its attempts."""
    type: str
    state: DeliveryState
    created_at: datetime
    """The time at which it happened."""
    run_id: str | None
    data: dict[str, Any]
    """The content of the body."""
    attempts: list[DeliveryAttempt]
    next_attempt_at: datetime | None


class DeliveryPage(DataModel):
    """Deliveries of a webhook, the newest first."""

    data: list[WebhookDelivery]
    next_cursor: str | None
    has_more: bool


class ReplayResult(DataModel):
    """The number of deliveries that are made again."""

    replayed: int
    more: bool
    """True: there were more than one request replays. Ask again, with ``until`` as it was."""


class WebhookState(DataModel):
    """A webhook that has something to be sent, that fails, or that is off."""

    id: str
    tenant: str
    """The name of its tenant."""
    pending: int
    """Deliveries that have not ended."""
    due_seconds: float
    """The time for which the next attempt has been due; 0: it is not yet, or never."""
    failing_since: datetime | None
    off_because: OffReason | None
