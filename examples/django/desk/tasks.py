"""Tasks of the project's Celery: one begins a run, one hears of its end."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.db import transaction
from django.dispatch import receiver

from palaver.contrib.django import run_ended, submit_on_commit

from .models import Ticket

AGENT = {"model": "fake/tool-1+rate-5", "tools": ["find_ticket"]}


@shared_task
def triage(number: int) -> None:
    """Have the assistant look at a ticket, once that is said to be so."""
    with transaction.atomic():
        ticket = Ticket.objects.select_related("owner").select_for_update().get(pk=number)
        if ticket.state == "new":
            ticket.state = "asked"
            submit_on_commit(ticket.owner, ticket.subject, agent=AGENT, conversation_id=ticket.conversation)
            ticket.save()


@receiver(run_ended)
def heard(conversation_id: str, status: str, **more: Any) -> None:
    """Keep how it ended: in the task that Palaver sends."""
    Ticket.objects.filter(conversation=conversation_id).update(state=status)
