"""The task that hears of events: name it in the file of PALAVER_WEBHOOKS, and Celery finds it in INSTALLED_APPS."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from .signals import tell


@shared_task(
    name="palaver.contrib.django.tasks.told",
    acks_late=True,
    autoretry_for=(Exception,),
    retry_backoff=True,
    max_retries=10,
)
def told(event: dict[str, Any]) -> None:
    """Send the signal of an event. If a receiver raises, Celery runs it again, ten times within ten minutes or so."""
    tell(event)
