"""Webhooks as they are kept: made, changed, read and removed (ADR 0118).

Runs of a tenant that has some are marked in each shard when they are submitted. The mark is written behind the webhook,
and a worker that delivers writes it again if it is missing: so a client that was told that a webhook is there hears of
every run that is submitted from then on.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, assert_never

from palaver.errors import Refused, StateConflict
from palaver.late import dataclass
from palaver.schemas.webhooks import WebhookInfo
from palaver.secrets.sealing import KeyMissing
from palaver.store.redis import keys
from palaver.store.redis.connection import now_ms
from palaver.store.scripting.contracts.agents import Absent, TenantErased, TooMany
from palaver.store.scripting.contracts.replies import RefusalCode
from palaver.store.scripting.moving import durable_reply
from palaver.store.scripting.refusals import refusal
from palaver.store.sides import Ground
from palaver.vocabulary.ids import file_webhook_id, is_id, new_webhook_id, tenant_of
from palaver.vocabulary.limits import count_exceeded
from palaver.vocabulary.webhooks import Format

from . import webhook_keys
from .bodies import WebhookChange
from .contract import MarkRuns, OtherConfig, PutWebhook, RemoveWebhook, Switch, WebhookPut
from .terms import OVERLAP
from .webhook_config import KeptSecret, WebhookConfig, readable, shown_webhook
from .webhook_file import FileWebhook
from .webhook_secrets import new_secret, signing_key

log = logging.getLogger("palaver.features.webhooks")

_PLACE: Final = "webhook"
_OLD: Final = 3
"""Secrets that sign beside the newest one."""
_LOOK: Final = 5.0
"""Seconds between two looks at the marks of tenants."""


@dataclass(frozen=True, slots=True)
class WebhookSecret:
    """A webhook, and the secret that was just made for it."""

    webhook: WebhookInfo
    secret: str


class Webhooks:
    """The webhooks of all tenants."""

    def __init__(self, ground: Ground) -> None:
        self._redis = ground.redis
        self._scripts = ground.scripts
        self._sealer = ground.settings.sealer
        self._rounds = ground.rounds

    async def create(
        self,
        tenant: str,
        url: str,
        *,
        types: Sequence[str] | None = None,
        format: Format = "palaver",
        description: str | None = None,
        by: str | None = None,
    ) -> WebhookSecret:
        """Make a webhook of a tenant.

        Raises:
            Refused: ``no_secret_key``, there is nothing to seal its secret with.
            StateConflict: ``webhooks_full``; ``tenant_erased``.
            NotDurable: it may be lost again.
        """
        now = await now_ms(self._redis)
        webhook_id = new_webhook_id(tenant)
        kept, secret = self._new_secret(webhook_id, now)
        listed = None if types is None else tuple(dict.fromkeys(types))
        await self.put(WebhookConfig(webhook_id, url, listed, format, description, now, by, (kept,)))
        return WebhookSecret(await self.get(webhook_id), secret)

    async def change(self, webhook_id: str, change: WebhookChange) -> WebhookInfo:
        """Change a webhook.

        Raises:
            Refused: ``webhook_not_found``; ``webhook_of_file``.
            NotDurable: done, but not safely yet.
        """
        wanted = {name: getattr(change, name) for name in change.model_fields_set - {"enabled"}}
        if wanted.get("url", "") is None:
            del wanted["url"]
        switch = {None: Switch.STAYS, True: Switch.ON, False: Switch.OFF}[change.enabled]
        # Those of the file are turned off by their receivers, too.
        only_on = switch is Switch.ON and not wanted
        await self._put_changed(webhook_id, lambda config: replace(config, **wanted), switch, of_file=only_on)
        return await self.get(webhook_id)

    async def rotate(self, webhook_id: str, overlap: int = OVERLAP) -> WebhookSecret:
        """Make a new secret. Those before sign beside it for as long as they would, and ``overlap`` seconds at most.

        Raises:
            Refused: ``webhook_not_found``; ``webhook_of_file``; ``no_secret_key``.
            NotDurable: done, but not safely yet.
        """
        now = await now_ms(self._redis)
        kept, secret = self._new_secret(webhook_id, now)

        def rotated(config: WebhookConfig) -> WebhookConfig:
            ends = now + overlap * 1000
            newest = config.signs(now)[: _OLD if overlap else 0]
            old = [replace(each, expires_at=min(each.expires_at or ends, ends)) for each in reversed(newest)]
            return replace(config, secrets=(*old, kept))

        await self._put_changed(webhook_id, rotated, Switch.STAYS)
        return WebhookSecret(await self.get(webhook_id), secret)

    async def _put_changed(
        self,
        webhook_id: str,
        changed: Callable[[WebhookConfig], WebhookConfig],
        switch: Switch,
        *,
        of_file: bool = False,
    ) -> None:
        """Change a webhook that requests may change, also while others do; also one ``of_file``."""
        while True:
            config = await self._own(webhook_id, of_file=of_file)
            if await self.put(changed(config), before=config, switch=switch):
                return

    async def put(
        self, config: WebhookConfig, *, before: WebhookConfig | None = None, switch: Switch = Switch.STAYS
    ) -> bool:
        """Keep a webhook as it is to be, a new one if there is none ``before``. Tell whether that was done: not if it
        is another one by now. Raises as `create` and `change`."""
        put = PutWebhook(
            keys=webhook_keys.of_webhook(config.id),
            of=webhook_keys.webhooks(config.tenant),
            tenants=webhook_keys.WEBHOOK_TENANTS,
            erasure=webhook_keys.webhooks_erasure(config.tenant),
            webhook_id=config.id,
            tag=config.tenant,
            config=config.json,
            before=None if before is None else before.json,
            switch=switch,
            mark=secrets.randbelow(1 << 40) + 1,
        )
        reply = await durable_reply(self._scripts.run_durably(put), _put)
        if reply is not None and before is None:
            await self._mark(config.tenant, reply.mark, marked=True)
        return reply is not None

    async def keep_file(self, tenant: str, name: str, webhook: FileWebhook) -> str:
        """Keep a webhook of the operator's file as it stands there; return its id. Raises as `put`."""
        webhook_id = file_webhook_id(name, tenant)
        text = await self._redis.hget(webhook_keys.of_webhook(webhook_id).hook, "config")
        before = None if text is None else WebhookConfig.of_json(text)
        config = WebhookConfig(
            id=webhook_id,
            url=webhook.place,
            types=webhook.types,
            format=webhook.format,
            description=webhook.description,
            created_at=before.created_at if before else await now_ms(self._redis),
            created_by=None,
            secrets=(),
            file_name=name,
        )
        if config != before:
            await self.put(config)
        return webhook_id

    async def forget_other_files(self, kept: Collection[str]) -> None:
        """Forget webhooks of the operator's file that are not among these: they stand there no more."""
        for tenant in await self.tenants():
            for config in await self.configs(tenant):
                if config.file_name is not None and config.id not in kept:
                    await self.forget(config.id)

    async def remove(self, webhook_id: str) -> None:
        """Forget a webhook and all of its deliveries.

        Raises:
            Refused: ``webhook_not_found``; ``webhook_of_file``.
            NotDurable: it may be back.
        """
        await self._own(webhook_id)
        await self.forget(webhook_id)

    async def forget(self, webhook_id: str) -> None:
        """As `remove`, also one of the file."""
        tag = tenant_of(webhook_id)
        remove = RemoveWebhook(
            keys=webhook_keys.of_webhook(webhook_id),
            of=webhook_keys.webhooks(tag),
            tenants=webhook_keys.WEBHOOK_TENANTS,
            webhook_id=webhook_id,
            tag=tag,
        )
        reply = await self._scripts.run_durably(remove)
        if not isinstance(reply, Absent) and reply.last_mark is not None:
            await self._mark(tag, reply.last_mark, marked=False)

    async def get(self, webhook_id: str) -> WebhookInfo:
        """Return a webhook. Raises Refused (``webhook_not_found``)."""
        found = await self._read([webhook_id]) if is_id("wh", webhook_id) else [None]
        if found[0] is None:
            raise _unknown()
        return found[0]

    async def list(self, tenant: str) -> Sequence[WebhookInfo]:
        """Return the webhooks of a tenant, the oldest first."""
        ids = await self._redis.zrange(webhook_keys.webhooks(tenant), 0, -1)
        found = await self._read([webhook_id.decode() for webhook_id in ids])
        return [webhook for webhook in found if webhook is not None]

    async def configs(self, tenant: str) -> Sequence[WebhookConfig]:
        """Return the webhooks of a tenant as they are kept, without those that cannot be read."""
        ids = await self._redis.zrange(webhook_keys.webhooks(tenant), 0, -1)
        pipeline = self._redis.pipeline(transaction=False)
        for webhook_id in ids:
            pipeline.hget(webhook_keys.of_webhook(webhook_id.decode()).hook, "config")
        texts = await pipeline.execute() if ids else []
        return [config for text in texts if text is not None and (config := readable(text)) is not None]

    async def tenants(self) -> Mapping[str, int]:
        """Return the tags of tenants that have webhooks, each with the number in whose name its runs are marked."""
        found = await self._redis.hgetall(webhook_keys.WEBHOOK_TENANTS)
        return {tag.decode(): int(mark) for tag, mark in found.items()}

    async def see_to_marks(self) -> None:
        """Write the marks of tenants that are not as they are to be: the process that was to do so has died. Of many
        shards, in those whose turn it is."""
        tenants = await self.tenants()
        fields = [_field(tag) for tag in tenants]
        shards = self._rounds.seldom("marks", 1 / _LOOK) if fields else ()
        pipeline = self._redis.pipeline(transaction=False)
        for shard in shards:
            pipeline.hmget(keys.caps(shard), fields)
        for shard, marks in zip(shards, await pipeline.execute() if shards else (), strict=True):
            for (tag, mark), there in zip(tenants.items(), marks, strict=True):
                if there is None or int(there) != mark:
                    await self._mark_in(shard, tag, mark, marked=True)

    async def unmark(self, shard: str, tenant: str) -> None:
        """Have runs of a tenant without webhooks marked no more."""
        mark = await self._redis.hget(keys.caps(shard), _field(tenant))
        if mark is not None and tenant not in await self.tenants():
            await self._mark_in(shard, tenant, int(mark), marked=False)

    async def _mark(self, tag: str, mark: int, *, marked: bool) -> None:
        await self._scripts.run_all(_marking(shard, tag, mark, marked=marked) for shard in self._rounds.shards)

    async def _mark_in(self, shard: str, tag: str, mark: int, *, marked: bool) -> None:
        await self._scripts.run(_marking(shard, tag, mark, marked=marked))

    def opened(self, config: WebhookConfig, now: int) -> Sequence[bytes]:
        """Return what events are signed with, the newest secret first.

        Raises:
            KeyMissing: this process has no key to open one with.
            SealBroken: it was changed.
        """
        places = [(secret.sealed, _PLACE, config.id, secret.id) for secret in config.signs(now)]
        return [signing_key(self._sealer.open(*place)) for place in places]

    def _new_secret(self, webhook_id: str, now: int) -> tuple[KeptSecret, str]:
        secret = new_secret()
        secret_id = secrets.token_hex(4)
        try:
            sealed = self._sealer.seal(secret, _PLACE, webhook_id, secret_id)
        except KeyMissing:
            raise Refused("no_secret_key", "PALAVER_SECRET_KEY is not set: webhooks have secrets.") from None
        return KeptSecret(secret_id, sealed, now), secret

    async def _own(self, webhook_id: str, *, of_file: bool = False) -> WebhookConfig:
        """The configuration of one that requests may change, or also of one ``of_file``."""
        text = (
            await self._redis.hget(webhook_keys.of_webhook(webhook_id).hook, "config")
            if is_id("wh", webhook_id)
            else None
        )
        if text is None:
            raise _unknown()
        config = WebhookConfig.of_json(text)
        if config.file_name is not None and not of_file:
            raise Refused("webhook_of_file", "It stands in the operator's file, and is changed there.")
        return config

    async def _read(self, ids: Sequence[str]) -> Sequence[WebhookInfo | None]:
        """None in the place of one that is not there."""
        pipeline = self._redis.pipeline(transaction=False)
        for webhook_id in ids:
            of = webhook_keys.of_webhook(webhook_id)
            pipeline.hmget(of.hook, ["config", "off", "delivered", "failed", "dropped", "failing_since"])
            pipeline.zcard(of.waiting)
        answers = await pipeline.execute() if ids else []
        pairs = zip(answers[::2], answers[1::2], strict=True)
        return [None if fields[0] is None else shown_webhook(fields, pending) for fields, pending in pairs]


def _marking(shard: str, tag: str, mark: int, *, marked: bool) -> MarkRuns:
    return MarkRuns(caps=keys.caps(shard), field=_field(tag), mark=mark, marked=marked)


def _field(tag: str) -> str:
    return keys.owner(tag) + webhook_keys.WEBHOOKS_MARK


def _unknown() -> Refused:
    return Refused("webhook_not_found")


def _put(reply: WebhookPut | Absent | OtherConfig | TooMany | TenantErased) -> WebhookPut | None:
    match reply:
        case WebhookPut() as put:
            return put
        case OtherConfig():
            return None
        case Absent():
            raise _unknown()
        case TooMany():
            count_exceeded("webhooks")
            raise StateConflict("webhooks_full", None, "there are as many webhooks as there may be")
        case TenantErased():
            raise refusal(RefusalCode.TENANT_ERASED, None)
        case none:
            assert_never(none)
