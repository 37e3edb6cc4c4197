"""The API inside another ASGI application: who its callers are, and what is mounted there."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

from palaver.errors import ConfigurationError
from palaver.late import dataclass
from palaver.vocabulary.ids import CONVERSATION_ID, TENANT_NAME
from palaver.vocabulary.scopes import SCOPES, Scope

if TYPE_CHECKING:
    from palaver.config.settings import Settings

_USER: Final = re.compile(r"[!-~]{1,128}")
_OF_PAGES: Final[frozenset[Scope]] = frozenset({"runs:submit", "runs:read", "runs:act", "actions:approve"})
_NEEDED: Final = ("starlette", "orjson", "redis")


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller of a request, as the application around the API knows it.

    Raises:
        TypeError, ValueError: a part that cannot be, with what it may be.
    """

    user: str
    """The name that is recorded: in ``submitted_by``, events, audit and usage. An id such as ``user:17``, of 1 to 128
    printable ASCII characters without blanks. No API key has a colon in its name."""
    tenant: str | None = None
    """The name of the tenant, 1 to 63 of a-z, 0-9 and -, which is made when it is first named; None: the default
    one."""
    scopes: Collection[Scope] | None = None
    """The scopes that the caller has; None: those that a page may have, which are ``runs:submit``, ``runs:read``,
    ``runs:act`` and ``actions:approve``."""
    agents: Collection[str] | None = None
    """The agents that the caller is held to, each ``name`` or ``name@version``; None: any, also inline ones."""
    conversation: str | None = None
    """The conversation that the caller is held to; None: any of the tenant."""

    def __post_init__(self) -> None:
        if not isinstance(self.user, str) or not _USER.fullmatch(self.user):
            raise ValueError("user is 1 to 128 printable ASCII characters without blanks, such as user:17")
        if self.tenant is not None and not (isinstance(self.tenant, str) and TENANT_NAME.fullmatch(self.tenant)):
            raise ValueError("tenant is 1 to 63 of a-z, 0-9 and -, and does not begin with -; or None")
        conversation = self.conversation
        if conversation is not None and not (isinstance(conversation, str) and re.match(CONVERSATION_ID, conversation)):
            raise ValueError("conversation is the id of one, such as conv_…; or None")
        scopes = _texts("scopes", self.scopes)
        if unknown := (scopes or frozenset()).difference(SCOPES):
            raise ValueError(f"scopes has {', '.join(sorted(unknown))}: there is {', '.join(SCOPES)}")
        object.__setattr__(self, "scopes", _OF_PAGES if scopes is None else scopes)
        object.__setattr__(self, "agents", _texts("agents", self.agents))


Identify = Callable[[Any], Awaitable[Identity | None] | Identity | None]
"""Returns who sends a request or opens a WebSocket, a ``starlette.requests.HTTPConnection``; None for a stranger."""


class MountedApi(Protocol):
    """An API that another ASGI application has below one of its paths."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Start the API, and end it behind the block. Raises ConfigurationError for settings that do not fit."""
        ...

    def lifespan(self, app: Any) -> AbstractAsyncContextManager[None]:
        """The same as a ``lifespan`` of the application around it."""
        ...


def asgi(identity: Identify | None = None, settings: Settings | None = None) -> MountedApi:
    """Return the API as an ASGI application, to mount below a path of yours: ``app.mount("/agents", palaver.asgi())``.

    With an ``identity`` the caller of each request and of each WebSocket is what it returns, and no API key counts;
    without one the API keys and tokens count as for ``palaver api``. The settings are those of the environment, read
    when it starts: with its first request, unless the application around it has its ``lifespan`` or ``running()``.

    Raises:
        ConfigurationError: what the API needs is not installed.
        TypeError: ``identity`` cannot be called.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise ConfigurationError(f"palaver.asgi needs {missing[0]}: pip install 'palaver[server]'")
    if identity is not None and not callable(identity):
        raise TypeError("identity is a function that takes a connection and returns palaver.Identity or None")
    # A checkout has `api` beside `palaver`, an installed wheel below it.
    package = "palaver.api" if find_spec("palaver.api") else "api"
    mounted: MountedApi = import_module(f"{package}.app.mounted").mounted(identity, settings)
    return mounted


def _texts(name: str, given: Collection[str] | None) -> frozenset[str] | None:
    if given is None:
        return None
    if isinstance(given, str) or not all(isinstance(each, str) for each in given):
        raise TypeError(f"{name} is a list or a set of texts, or None")
    return frozenset(given)
