"""The API below a path of the project's ASGI application."""

from __future__ import annotations

import os
from typing import Any

from asgiref.sync import sync_to_async
from django.core.exceptions import SuspiciousOperation
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

import palaver
from api.http.auth import routed_path
from palaver.config.mounting import Identify, Identity

from .identities import of_session
from .project_settings import environment


def asgi(application: ASGIApp, path: str = "/agents/", identity: Identify | None = None) -> ASGIApp:
    """Return the application of ``asgi.py`` with the API below a path: ``asgi(get_asgi_application())``.

    Callers are the users of Django's sessions, as ``PALAVER["IDENTITY"]`` says; or what ``identity`` returns of a
    ``starlette.requests.HTTPConnection``. The settings are those of ``PALAVER``, and those of the environment before
    them. The API starts and ends with the server, if that speaks the lifespan protocol, or else with the first request.

    Raises:
        ImproperlyConfigured: a ``PALAVER`` that does not fit.
        ConfigurationError: what the API needs is not installed.
        ValueError: the path is that of the whole site.
    """
    below = "/" + path.strip("/")
    if below == "/":
        raise ValueError("path is below that of the site, such as /agents/")
    os.environ.update(environment())
    api = palaver.asgi(identity=identity or _of_session)

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await api(scope, receive, send)
        elif f"{routed_path(scope)}/".startswith(f"{below}/"):
            inner = {**scope, "root_path": scope.get("root_path", "") + below}
            try:
                await api(inner, receive, send)
            except SuspiciousOperation:
                # As Django answers it.
                await _bad_request(scope, receive, send)
        else:
            await application(scope, receive, send)

    return route


async def _of_session(connection: HTTPConnection) -> Identity | None:
    # In threads that stay: in those of Django's requests each would open a connection to the database anew.
    found: Identity | None = await sync_to_async(of_session, thread_sensitive=False)(connection)
    return found


async def _bad_request(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        answer: Any = PlainTextResponse("Bad Request", 400)
        await answer(scope, receive, send)
