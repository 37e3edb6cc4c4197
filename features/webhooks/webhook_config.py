"""The configuration of a webhook, as it is kept, and how requests see it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import orjson

from palaver.errors import UNREADABLE
from palaver.late import dataclass
from palaver.schemas.webhooks import SecretInfo, WebhookInfo
from palaver.store.reading.records import instant, moment
from palaver.vocabulary.ids import tenant_of
from palaver.vocabulary.webhooks import Format

log = logging.getLogger("palaver.features.webhooks")


@dataclass(frozen=True, slots=True)
class KeptSecret:
    """A secret as it is kept."""

    id: str
    sealed: str
    """As `Sealer` wrote it; for a webhook of the file the secret stays there, and this is empty."""
    created_at: int
    expires_at: int | None = None
    """ms, as the other one."""


@dataclass(frozen=True, slots=True)
class WebhookConfig:
    """A webhook as it is kept."""

    id: str
    url: str
    types: tuple[str, ...] | None
    format: Format
    description: str | None
    created_at: int
    """ms."""
    created_by: str | None
    secrets: tuple[KeptSecret, ...]
    file_name: str | None = None
    """Its name in the operator's file; None: it was made by a request."""

    @property
    def tenant(self) -> str:
        """The tag of its tenant."""
        return tenant_of(self.id)

    @property
    def json(self) -> bytes:
        """The text that is stored."""
        return orjson.dumps(self)

    @classmethod
    def of_json(cls, text: bytes) -> WebhookConfig:
        """The configuration that a text says; what newer code knows besides is left out."""
        fields: dict[str, Any] = orjson.loads(text)
        made = {name: fields[name] for name in cls.__slots__ if name in fields}
        made["types"] = None if made["types"] is None else tuple(made["types"])
        made["secrets"] = tuple(KeptSecret(**secret) for secret in made["secrets"])
        return cls(**made)

    def signs(self, now: int) -> tuple[KeptSecret, ...]:
        """The secrets that events are signed with, the newest first."""
        alive = [secret for secret in self.secrets if secret.expires_at is None or secret.expires_at > now]
        return tuple(reversed(alive))

    def hears(self, event_type: str, at: int) -> bool:
        """Tell whether an event of that time is for it."""
        return at >= self.created_at and (self.types is None or event_type in self.types)


def readable(text: bytes) -> WebhookConfig | None:
    try:
        return WebhookConfig.of_json(text)
    except UNREADABLE:
        log.error("a webhook cannot be read: it hears of nothing")
        return None


def shown_webhook(fields: Sequence[bytes | None], pending: int) -> WebhookInfo:
    config, off, delivered, failed, dropped, failing_since = fields
    assert config is not None
    kept = WebhookConfig.of_json(config)
    return WebhookInfo(
        id=kept.id,
        url=kept.url,
        types=kept.types,
        format=kept.format,
        description=kept.description,
        enabled=off is None,
        off_because=off.decode() if off else None,
        secrets=[
            SecretInfo(
                id=secret.id,
                created_at=instant(secret.created_at),
                expires_at=moment(secret.expires_at),
            )
            for secret in kept.secrets
        ],
        created_at=instant(kept.created_at),
        created_by=kept.created_by,
        of_file=kept.file_name is not None,
        pending=pending,
        delivered=int(delivered or 0),
        failed=int(failed or 0),
        dropped=int(dropped or 0),
        failing_since=moment(failing_since),
    )
