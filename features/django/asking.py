"""The API within this process, for code that blocks: views, commands and tasks ask it as the user for whom they act,
with no key and no server of its own.

It lives on an event loop in a thread, which the first question starts in each process.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, TypeVar

import httpx
from django.core.exceptions import PermissionDenied
from django.utils.asyncio import async_unsafe
from starlette.types import Scope

from api.app.application import ApiApplication, create_app, require_redis
from api.app.identities import IDENTITY, IdentityAccess
from api.app.mounted import Mounted
from api.kit.dialects import Dialect
from palaver.client import AsyncPalaver
from palaver.config.mounting import Identity
from palaver.config.settings import settings
from palaver.operations import Caller, LiveToken

from .identities import of_user
from .project_settings import environment

T = TypeVar("T")
_PATIENCE: Final = 10.0
"""Seconds that a request of the project waits for Redis, or for room."""
_ENDING: Final = 5.0
_ADDRESS: Final = "http://palaver.invalid"
"""Nothing is sent there."""
_asked_by: ContextVar[tuple[Identity, bool]] = ContextVar("asked_by")


@async_unsafe("palaver.contrib.django blocks: call it by sync_to_async.")
def ask(user: Any, question: Callable[[AsyncPalaver], Awaitable[T]], *, operator: bool = False) -> T:
    """Ask the API as a user of the project: ``ask(request.user, lambda palaver: palaver.cancel(run_id))``.

    The `AsyncPalaver` is the client of the SDK, without streams of events. An ``operator`` reaches the runs of all
    tenants: that is for what your own code has seen to. Blocks, for some ten seconds at most while Redis is away.

    Raises:
        PermissionDenied: the user may not use the API.
        SynchronousOnlyOperation: in an event loop.
        ImproperlyConfigured, ConfigurationError: the settings do not fit.
    """
    identity = of_user(user)
    if identity is None:
        raise PermissionDenied("this user is no caller of Palaver")
    return ask_as(identity, question, operator=operator)


def ask_as(who: Identity, question: Callable[[AsyncPalaver], Awaitable[T]], *, operator: bool = False) -> T:
    """The same for a caller that is known already."""
    here = _here()

    async def asked() -> T:
        _asked_by.set((who, operator))
        return await question(here.client)

    return asyncio.run_coroutine_threadsafe(asked(), here.loop).result()


class _InsideAccess(IdentityAccess):
    """The access of what this process asks."""

    async def admit(
        self, path: str, scope: Scope, headers: dict[bytes, bytes], dialect: Dialect
    ) -> tuple[Caller, LiveToken | None]:
        """As its base."""
        who, operator = _asked_by.get()
        caller, live = await super().admit(path, {**scope, IDENTITY: who}, headers, dialect)
        return (replace(caller, operator=True, scopes=None) if operator else caller), live


class _Inside:
    """The API on a loop in a thread."""

    def __init__(self) -> None:
        os.environ.update(environment())
        # What does not fit is the caller's to hear; later the API would say that its log has it.
        settings()
        self.process: Final = os.getpid()
        self.loop: Final = asyncio.new_event_loop()
        self._api: Final = Mounted(_application, None)
        self.client: Final = AsyncPalaver(_ADDRESS, timeout=_PATIENCE)
        self.client._transport._http = httpx.AsyncClient(
            base_url=_ADDRESS, transport=httpx.ASGITransport(self._api), headers={"Accept": "application/json"}
        )
        self._thread: Final = threading.Thread(target=self.loop.run_forever, name="palaver", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Send what was handed over for workers, and end. What they are not told by then they find in Redis."""
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._stop(), self.loop).result(_ENDING)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_ENDING)
        if not self._thread.is_alive():
            self.loop.close()

    async def _stop(self) -> None:
        async with self._api.running():
            pass
        await self.client.aclose()


def _application() -> ApiApplication:
    # Names of hosts are for requests that come from elsewhere, and so are other dialects.
    here = settings().model_copy(update={"allowed_hosts": (), "dialects": ("native",), "console": False})
    require_redis(here)
    return create_app(here, access=_InsideAccess)


_lock: Final = threading.Lock()
_inside: _Inside | None = None


def _here() -> _Inside:
    global _inside
    with _lock:
        # A server that forks its processes has loaded the project before.
        if _inside is None or _inside.process != os.getpid():
            _inside = _Inside()
        return _inside


@atexit.register
def end() -> None:
    """End the API of this process, if it has one; the next question starts another."""
    global _inside
    here, _inside = _inside, None
    if here is not None and here.process == os.getpid():
        here.end()
