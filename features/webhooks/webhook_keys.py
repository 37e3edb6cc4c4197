"""Keys of webhooks.

Webhooks share a hash tag, and what they are to hear stands where the run is; there are none of these keys where there
were no webhooks. Where a tenant has some, the field ``<owner>webhooks`` of `palaver.store.redis.keys.caps` is a number.

{palaver:webhooks}:tenants  hash    a number for each tenant that has some, by its tag                     no TTL
{palaver:webhooks}:of:<tag> zset    the webhooks of a tenant by time of creation                           no TTL
{palaver:webhooks}:due      zset    all of them, by when something is to be done about one                 no TTL
{palaver:webhooks}:counts   hash    attempts at all of them, by what became of them, after the last one, too  no TTL
{palaver:webhooks}:hook:<id> hash   a webhook: its configuration, its lease, and how it fares              no TTL
{palaver:webhooks}:waiting:<id> zset  its deliveries that are pending, by the time of the next attempt     no TTL
{palaver:webhooks}:listed:<id> zset  all of its deliveries, by since when they are there                   no TTL
{palaver:webhooks}:ended:<id> zset  those that are not pending, by since when                              no TTL
{palaver:webhooks}:records:<id> hash  the record of each delivery, JSON                                    no TTL
{p00}:<owner>outbox stream  what webhooks of an owner are to hear and are not taken yet              TTL: retention
{p00}:outboxes     zset     those that have entries, by since when                               no TTL
{palaver:webhooks}:erasure:<tag> hash  what was erased of them: none is put any more                   TTL: a day
"""

from __future__ import annotations

from typing import Final, NamedTuple

from palaver.store.redis.keys import DEFAULT_TENANT, Key, Owner
from palaver.store.redis.reach import reached

_WEBHOOKS: Final = "{palaver:webhooks}"
WEBHOOK_TENANTS: Final = f"{_WEBHOOKS}:tenants"
WEBHOOKS_DUE: Final = f"{_WEBHOOKS}:due"
WEBHOOKS_COUNTS: Final = f"{_WEBHOOKS}:counts"
WEBHOOKS_MARK: Final = "webhooks"
"""The field of a shard's caps, behind the owner, that says that a tenant has webhooks."""


class WebhookKeys(NamedTuple):
    """The keys of every script about one webhook."""

    hook: Key
    waiting: Key
    listed: Key
    ended: Key
    records: Key
    due: Key
    counts: Key
    """The numbers of attempts at all webhooks, by their results."""


def of_webhook(webhook_id: str) -> WebhookKeys:
    """Return the keys for a script about one webhook."""
    name = reached(webhook_id)
    return WebhookKeys(
        f"{_WEBHOOKS}:hook:{name}",
        f"{_WEBHOOKS}:waiting:{name}",
        f"{_WEBHOOKS}:listed:{name}",
        f"{_WEBHOOKS}:ended:{name}",
        f"{_WEBHOOKS}:records:{name}",
        WEBHOOKS_DUE,
        WEBHOOKS_COUNTS,
    )


def webhooks(tag: str) -> str:
    """The webhooks of a tenant."""
    return f"{_WEBHOOKS}:of:{tag}"


def webhooks_erasure(tag: str) -> str:
    """The count of what was erased of a tenant's webhooks."""
    return f"{_WEBHOOKS}:erasure:{tag}"


def outbox(shard: str, of: Owner = DEFAULT_TENANT) -> str:
    """The events that the webhooks of an owner are to hear."""
    return f"{{p{shard}}}:{of}outbox"


def outboxes(shard: str) -> str:
    """The outboxes that have entries, without the hash tag."""
    return f"{{p{shard}}}:outboxes"
