"""Runs as Django's admin knows them: it has permissions and pages for models. There is no table of them."""

from __future__ import annotations

from typing import Any

from django.db import models


class _NoRows(models.Manager):
    """Finds nothing, and asks no table for it: whatever goes through all models of a project comes here, too."""

    def get_queryset(self) -> Any:
        """Return none."""
        return super().get_queryset().none()


class ListedRun(models.Model):
    """A run, which the API has: nothing of it is in the project's database."""

    id = models.CharField(primary_key=True, max_length=100)
    objects = _NoRows()

    class Meta:
        """Users with the permission ``view`` see the runs of all tenants, with ``change`` they decide and stop."""

        app_label = "palaver"
        verbose_name = "run"
        default_permissions = ("view", "change")
        managed = False
