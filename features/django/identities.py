"""Users of the project as callers of the API."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.asgi import ASGIRequest
from django.db import close_old_connections
from starlette.requests import HTTPConnection
from starlette.types import Scope

from palaver.config.mounting import Identity

from .project_settings import hook


def of_user(user: Any) -> Identity | None:
    """Return the caller that a user is: with ``PALAVER["IDENTITY"]`` what that returns, else one with a tenant of its
    own. None for who is not logged in, or not active.

    Raises:
        ValueError: the primary keys of these users can be no names of tenants.
        ImproperlyConfigured: ``PALAVER["IDENTITY"]`` leads nowhere.
    """
    if not (user.is_authenticated and user.is_active):
        return None
    identity: Identity | None = hook("IDENTITY", _alone)(user)
    return identity


def _alone(user: Any) -> Identity:
    return Identity(user=f"user:{user.pk}", tenant=f"user-{user.pk}")


def of_session(connection: HTTPConnection) -> Identity | None:
    """Return the caller whose session a request or a WebSocket brings; None for a stranger. It may block.

    Raises:
        DisallowedHost: ALLOWED_HOSTS does not have the host that is asked.
    """
    request = request_of(connection.scope)
    request.get_host()
    store = import_module(settings.SESSION_ENGINE).SessionStore
    request.session = store(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    # Once SECRET_KEY is replaced, a page of the project gives the session its new key: its cookie goes with the answer.
    request.session.cycle_key = lambda: None
    close_old_connections()
    try:
        return of_user(get_user(request))
    finally:
        close_old_connections()


def request_of(scope: Scope) -> Any:
    """Return what Django makes of the head of a request, also of one that opens a WebSocket."""
    return ASGIRequest({"method": "GET", **scope}, BytesIO())
