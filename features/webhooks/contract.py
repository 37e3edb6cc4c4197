"""Operations on webhooks and their deliveries (ADR 0118)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from palaver.late import dataclass
from palaver.store.redis.keys import Key
from palaver.store.scripting.contracts.agents import Absent, TenantErased, TooMany
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.replies import Stale
from palaver.store.scripting.contracts.wire import Json
from palaver.vocabulary.durations import Seconds

from .webhook_keys import WebhookKeys


class Switch(StrEnum):
    """A change of a webhook besides its configuration."""

    STAYS = "stays"
    ON = "on"
    OFF = "off"


class AttemptOutcome(StrEnum):
    """The outcome of an attempt of a delivery."""

    DELIVERED = "delivered"
    AGAIN = "again"
    """It failed, and there will be another one."""
    FAILED = "failed"
    """It was the last one."""
    GONE = "gone"
    """The receiver wants nothing any more."""
    UNTRIED = "untried"
    """The worker could not make it: another one may."""
    UNREADABLE = "unreadable"
    """It cannot be made: its record is none."""


@dataclass(frozen=True, slots=True)
class WebhookPut:
    """It is there as it is to be."""

    mark: int
    """The number in whose name the tenant's runs are marked."""


@dataclass(frozen=True, slots=True)
class OtherConfig:
    """Another client has changed it since it was read: nothing was changed."""


class PutWebhook(Script[WebhookPut | Absent | OtherConfig | TooMany | TenantErased]):
    """Make a webhook, or change one."""

    grows = True

    keys: WebhookKeys
    of: Key
    """The webhooks of the tenant."""
    tenants: Key
    erasure: Key
    webhook_id: str
    tag: str
    config: Json
    before: Json | None
    """The configuration that it is to have until now; None: it may be new, and have any."""
    switch: Switch
    mark: int
    """The number in whose name its runs are marked, if the tenant has none yet."""


@dataclass(frozen=True, slots=True)
class WebhookRemoved:
    """It is gone, with all of its deliveries."""

    last_mark: int | None
    """It was the tenant's last one: the number in whose name its runs were marked."""


class RemoveWebhook(Script[WebhookRemoved | Absent]):
    """Forget a webhook and its deliveries."""

    when_full = True

    keys: WebhookKeys
    of: Key
    tenants: Key
    webhook_id: str
    tag: str


@dataclass(frozen=True, slots=True)
class RunsMarked:
    """Runs that are submitted from now on are marked, or not."""


class MarkRuns(Script[RunsMarked]):
    """Have runs marked whose tenant has webhooks; or no more, unless another process has had them marked meanwhile."""

    caps: Key
    field: str
    mark: int
    marked: bool


@dataclass(frozen=True, slots=True)
class EventsForgotten:
    """They are in the outbox no more."""


class ForgetEvents(Script[EventsForgotten]):
    """Take entries out of an outbox that are among the deliveries by now."""

    when_full = True

    outbox: Key
    outboxes: Key
    outbox_name: str
    """Its name among these."""
    entries: tuple[str, ...]


class QueuedDelivery(NamedTuple):
    """A delivery to be made."""

    delivery_id: str
    record: Json


@dataclass(frozen=True, slots=True)
class DeliveriesQueued:
    """They are pending."""

    number: int
    """The number of those that were not pending before."""


class QueueDeliveries(Script[DeliveriesQueued]):
    """Make deliveries pending, unless the webhook is off, or has them already."""

    grows = True

    keys: WebhookKeys
    again: bool
    """Make those that it has, and that have ended, again."""
    deliveries: tuple[QueuedDelivery, ...]


@dataclass(frozen=True, slots=True)
class DeliveryClaimed:
    """No other worker makes an attempt at this webhook as long as the lease lasts."""

    fence: int
    config: bytes
    delivery_id: str
    record: bytes


@dataclass(frozen=True, slots=True)
class NothingDue:
    """There is nothing to send to it now."""


class ClaimDelivery(Script[DeliveryClaimed | NothingDue]):
    """Lease a webhook for an attempt of its first delivery that is due."""

    keys: WebhookKeys
    webhook_id: str
    lease: Seconds


@dataclass(frozen=True, slots=True)
class AttemptSettled:
    """It is recorded."""

    off: str | None
    """The webhook is off from now on, and why."""


class SettleAttempt(Script[AttemptSettled | Stale]):
    """Record an attempt, and let the webhook go."""

    when_full = True

    keys: WebhookKeys
    fence: int
    delivery_id: str
    outcome: AttemptOutcome
    record: Json
    again_in: Seconds
    rests: Seconds
    """Nothing is sent to the webhook for so long: it asked for that."""


SCRIPTS: Final = (
    PutWebhook,
    RemoveWebhook,
    MarkRuns,
    ForgetEvents,
    QueueDeliveries,
    ClaimDelivery,
    SettleAttempt,
)
NAMES: Final = (Switch, AttemptOutcome)
"""Enums that its scripts write as Python does."""
