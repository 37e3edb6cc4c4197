"""What the desk keeps."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Ticket(models.Model):
    """A question of a customer."""

    subject = models.CharField(max_length=200)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)
    conversation = models.CharField(max_length=80)
    state = models.CharField(max_length=20, default="new")
    refunded = models.BooleanField(default=False)
