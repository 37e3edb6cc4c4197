"""Celery applications of Palaver's own, in an environment that may be that of a project which has Celery, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import Celery


class OwnCelery(Celery):  # type: ignore[misc]  # Celery is untyped
    """An application that has these settings and no others.

    Variables that every application of Celery's obeys are meant for those of a project: CELERY_BROKER_URL and its like
    would send our deliveries to its broker, CELERY_CONFIG_MODULE and DJANGO_SETTINGS_MODULE import its code.
    """

    def __init__(self, name: str, settings: Mapping[str, Any], **more: Any) -> None:
        super().__init__(name, loader="app", fixups=(), config_source=dict(settings), **more)
        self.backend_cls = settings.get("result_backend") or "disabled"

    def connection_for_read(self, url: str | None = None, **options: Any) -> Any:
        """As Celery's."""
        return super().connection_for_read(url or self._address("broker_read_url"), **options)

    def connection_for_write(self, url: str | None = None, **options: Any) -> Any:
        """As Celery's."""
        return super().connection_for_write(url or self._address("broker_write_url"), **options)

    def connection(self, hostname: str | None = None, **options: Any) -> Any:
        """As Celery's."""
        return self.connection_for_write(hostname, **options)

    def _address(self, name: str) -> Any:
        # By its key: the attribute of that name reads the variable.
        return self.conf[name] or self.conf["broker_url"]
