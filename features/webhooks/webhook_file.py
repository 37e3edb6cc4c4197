"""The operator's file of webhooks (``PALAVER_WEBHOOKS``): trusted, so they may be at any address."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from palaver.config.toml_file import read_strictly
from palaver.errors import ConfigurationError
from palaver.schemas.fields import DataModel
from palaver.secrets.redaction import passwords_of, register_secrets
from palaver.vocabulary.webhooks import Format

from .terms import AnyEventType
from .webhook_secrets import signing_key

_SETTING: Final = "PALAVER_WEBHOOKS"
_Variable = Annotated[str, StringConstraints(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]
_Word = Annotated[str, StringConstraints(pattern=r"^\S{1,255}$")]
_Name = Annotated[str, StringConstraints(pattern="^[a-z0-9][a-z0-9-]{0,31}$")]


class FileWebhook(DataModel):
    """A table ``[webhooks.NAME]``: an address that requests are sent to, or a task of a Celery application."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    url: str | None = None
    task: _Word | None = None
    """The name of a task, which is sent with the event as its argument."""
    broker_env: _Variable | None = None
    """The variable with the address of the task's broker."""
    queue: _Word = "celery"
    """The queue of the task."""
    secret_env: _Variable | None = None
    """The variable with the secret of requests, ``whsec_…``."""
    previous_secret_env: _Variable | None = None
    """The variable with the one before, which signs, too, as long as it is named here."""
    types: Annotated[tuple[AnyEventType, ...], Field(min_length=1)] | None = None
    format: Format = "palaver"
    description: str | None = None
    tenant: str | None = None
    """The name of the tenant whose runs it hears of; None: the default one."""

    @property
    def place(self) -> str:
        """The address, or ``celery:`` and the name of the task."""
        return f"celery:{self.task}" if self.url is None else self.url

    def broker(self, name: str, environment: Mapping[str, str]) -> str:
        """Return the address of the task's broker. Raises ConfigurationError for one that is missing."""
        address = environment.get(self.broker_env or "", "")
        if "://" not in address:
            raise ConfigurationError(f"{_SETTING}: [webhooks.{name}]: {self.broker_env} has no address of a broker")
        register_secrets(passwords_of(address))
        return address

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.url is None) == (self.task is None):
            raise ValueError("has either url or task")
        if self.url is not None and self.secret_env is None:
            raise ValueError("needs secret_env, the name of a variable with its secret")
        if self.task is not None and self.broker_env is None:
            raise ValueError("needs broker_env, the name of a variable with the address of the task's broker")
        return self

    def keys(self, name: str, environment: Mapping[str, str]) -> list[bytes]:
        """Return the keys that its events are signed with, of the newest secret first.

        Raises:
            ConfigurationError: a variable is not set, or holds no such secret.
        """
        found: list[bytes] = []
        for variable in (self.secret_env, self.previous_secret_env):
            if variable is None:
                continue
            secret = environment.get(variable, "")
            try:
                found.append(signing_key(secret))
            except ValueError as error:
                raise ConfigurationError(f"{_SETTING}: [webhooks.{name}]: {variable} {error}") from None
            register_secrets([secret])
        return found


class _WebhookFile(DataModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    webhooks: dict[_Name, FileWebhook] = Field(default={})


def load_webhooks(path: Path | None, environment: Mapping[str, str] = os.environ) -> dict[str, FileWebhook] | None:
    """The webhooks of the file, by name; None without a file. An empty one says that there are to be none.

    Raises:
        ConfigurationError: it cannot be read, something in it does not fit, or a secret is missing.
    """
    if path is None:
        return None
    found = read_strictly(_WebhookFile, path, _SETTING).webhooks
    for name, webhook in found.items():
        if webhook.url is None:
            webhook.broker(name, environment)
            continue
        place = urlsplit(webhook.url)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ConfigurationError(f"{_SETTING}: [webhooks.{name}]: url must begin with http:// or https://")
        webhook.keys(name, environment)
    return found
