"""The page of the desk, and what it asks besides Palaver."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model, login
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.views.decorators.http import require_POST

import palaver
from palaver.contrib.django import ask

from .models import Ticket
from .tasks import AGENT, triage


def who(user: Any) -> palaver.Identity | None:
    """The people of the desk are callers; they see each other's conversations."""
    return palaver.Identity(f"user:{user.username}") if user.is_staff else None


def page(request: HttpRequest) -> HttpResponse:
    """The chat, or who to log in as."""
    return render(request, "desk.html", {"people": get_user_model().objects.filter(is_staff=True).order_by("username")})


@require_POST
def enter(request: HttpRequest, name: str) -> HttpResponse:
    """Log in without a password, for a try."""
    login(request, get_user_model().objects.get(username=name), "django.contrib.auth.backends.ModelBackend")
    return redirect("/")


@login_required
@require_POST
@transaction.atomic
def tickets(request: HttpRequest) -> JsonResponse:
    """Take a ticket on; a task has the assistant look at it."""
    conversation = ask(request.user, lambda palaver: palaver.create_conversation(agent=AGENT))
    ticket = Ticket.objects.create(subject=request.POST["subject"], owner=request.user, conversation=conversation.id)
    transaction.on_commit(lambda: triage.delay(ticket.pk))
    return JsonResponse({"number": ticket.pk, "conversation": ticket.conversation})


@login_required
def ticket(request: HttpRequest, number: int) -> JsonResponse:
    """How it stands."""
    return JsonResponse(Ticket.objects.values("state", "refunded", "conversation").get(pk=number))


urlpatterns = [
    path("", page),
    path("enter/<name>", enter),
    path("tickets", tickets),
    path("tickets/<int:number>", ticket),
    path("admin/", admin.site.urls),
]
