"""The application, as Django loads it."""

from __future__ import annotations

from django.apps import AppConfig

from .project_settings import environment


class PalaverConfig(AppConfig):
    """Palaver in this project. Raises ImproperlyConfigured for a ``PALAVER`` that does not fit."""

    name = "palaver.contrib.django"
    label = "palaver"
    verbose_name = "Palaver"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Look at the settings, and have them checked."""
        environment()
        from . import checks as checks  # it registers them
