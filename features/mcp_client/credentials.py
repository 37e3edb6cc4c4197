"""The credentials with which a server is asked: none, secrets in headers, or tokens for a client's secret.

They are those of the source itself, of a tenant or of a conversation. Each has a connection of its own, so that no
session and no token is another one's.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar
from urllib.parse import quote

import orjson

from palaver.errors import ConfigurationError, ToolError
from palaver.errors.headers import retry_after
from palaver.schemas.fields import fits_a_header
from palaver.secrets.redaction import register_secrets
from palaver.tools import ToolContext
from palaver.vocabulary.ids import tenant_of
from workers.sources.tables import required, required_for_header

from .connection import McpConnection
from .http_transport import answering, http_client, whole
from .tables import ClientCredentials, McpServer, TenantAccess
from .wire import InvalidAnswer, Lost, NeverSent, RequestRefused

log = logging.getLogger("palaver.features.mcp_client.credentials")

T = TypeVar("T")

_EARLY: Final = 30.0
"""Seconds before its end in which a token is not used any more."""
_LONGEST: Final = 3600.0
_PATIENCE: Final = 15.0
_MOST: Final = 64 * 1024
_SECRET: Final = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|DSN", re.IGNORECASE)
"""Matches the name of a variable whose value is kept out of results: a server that lists files has to name them."""


class Credentials:
    """The headers that say who asks a server; secrets are read once, and kept out of whatever is shown."""

    def __init__(self, section: McpServer, tenant: TenantAccess | None = None) -> None:
        """Read the secrets of a server's table, or of one tenant.

        Raises:
            ConfigurationError: a variable is not set.
        """
        who = tenant or section
        values = {name: value for name, header in who.headers.items() if (value := header.of_environment()) is not None}
        self._fixed = {name: f"{who.headers[name].prefix}{value}" for name, value in values.items()}
        self._of_conversations = {name: header for name, header in who.headers.items() if header.secret is not None}
        secrets = [*values.values()]
        self._grant = None
        if who.oauth is not None:
            assert section.url is not None
            secret = required_for_header(who.oauth.client_secret_env)
            secrets.append(secret)
            self._grant = _Grant(who.oauth, secret, who.oauth.resource or section.url)
        register_secrets(secrets)

    def of_conversation(self, context: ToolContext) -> Mapping[str, str]:
        """The headers whose secrets are those of the conversation of a call.

        Raises:
            ToolError: it lacks one.
        """
        return {
            name: header.prefix + header.of_conversation(context) for name, header in self._of_conversations.items()
        }

    def with_headers(self, headers: Mapping[str, str]) -> Credentials:
        """The same with these headers besides."""
        more = copy.copy(self)
        more._fixed = {**self._fixed, **headers}
        return more

    @property
    def identity(self) -> str:
        """Differs wherever a server may answer differently."""
        return repr(sorted(self._fixed.items())) + (self._grant.identity if self._grant else "")

    async def __call__(self) -> Mapping[str, str]:
        """The headers.

        Raises:
            NeverSent, RequestRefused: there is no token to be had.
        """
        return self._fixed if self._grant is None else {**self._fixed, **await self._grant.headers()}

    def renewed(self) -> bool:
        """Forget a token that was refused; tell whether there can be another one."""
        return self._grant is not None and self._grant.forget()


class _Grant:
    """Tokens for a client's secret, one at a time."""

    def __init__(self, terms: ClientCredentials, secret: str, resource: str) -> None:
        self._terms = terms
        self._secret = secret
        self._resource = resource
        self._token: str | None = None
        self._until = 0.0
        self._asking = asyncio.Lock()

    @property
    def identity(self) -> str:
        return f"{self._terms.token_url} {self._terms.client_id} {self._terms.scope}"

    def forget(self) -> bool:
        had, self._token = self._token is not None, None
        return had

    async def headers(self) -> Mapping[str, str]:
        async with self._asking:
            if self._token is None or time.monotonic() >= self._until:
                await self._ask()
        return {"Authorization": f"Bearer {self._token}"}

    async def _ask(self) -> None:
        form = {"grant_type": "client_credentials", "resource": self._resource}
        if self._terms.scope is not None:
            form["scope"] = self._terms.scope
        headers = {}
        if self._terms.method == "basic":
            pair = f"{quote(self._terms.client_id, safe='')}:{quote(self._secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": self._terms.client_id, "client_secret": self._secret}
        try:
            async with asyncio.timeout(_PATIENCE), http_client() as client:
                asked = client.post(self._terms.token_url, data=form, headers=headers, allow_redirects=False)
                async with answering(asked) as response:
                    if response.status in (429, 503) or response.status >= 500:
                        wait = retry_after(response.headers)
                        raise NeverSent(
                            f"its token server failed (HTTP {response.status})",
                            retry_after=wait,
                            status=response.status,
                        )
                    if response.status != 200:
                        raise RequestRefused(
                            f"its token server refuses the client (HTTP {response.status})", status=401
                        )
                    self._keep(await whole(response, _MOST))
        except (Lost, InvalidAnswer, TimeoutError) as error:
            raise NeverSent(f"its token server gives no token: {error or 'it takes too long'}") from error

    def _keep(self, body: bytes) -> None:
        try:
            answer: Any = orjson.loads(body)
            token, kind = answer["access_token"], answer["token_type"]
            lasts = float(answer.get("expires_in", _LONGEST))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidAnswer("what came is none") from None
        if not isinstance(token, str) or str(kind).lower() != "bearer" or not fits_a_header(token):
            raise InvalidAnswer("what came is no bearer token")
        register_secrets([token])
        self._token, self._until = token, time.monotonic() + max(0.0, min(lasts, _LONGEST) - _EARLY)


class ServerAccess:
    """Asks a server with credentials."""

    def __init__(self, credentials: Credentials, connection: McpConnection) -> None:
        self.credentials = credentials
        self.connection = connection
        self.users = 0
        """The calls that it is for at the moment."""

    async def renewing(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask, and once more with a new token if the server did not take the request because of the old one."""
        try:
            return await ask()
        except RequestRefused as error:
            if error.status != 401 or not self.credentials.renewed():
                raise
            return await ask()


class Accesses:
    """The accesses to one server. Those of others than the source are made when they are needed."""

    def __init__(
        self, label: str, section: McpServer, connect: Callable[[Credentials], McpConnection], *, most: int
    ) -> None:
        """``most`` connections with secrets of conversations are kept though they are idle.

        Raises:
            ConfigurationError: a variable is not set.
        """
        self._most = most
        self._label = label
        self._section = section
        self._connect = connect
        self.own = self._access(Credentials(section))
        self._of_tenants = {tag: self._of_tenant(tag, tenant) for tag, tenant in section.tenants.items()}
        """None for one whose secret is not here: it is not asked for with another's."""
        self._of_conversations: OrderedDict[tuple[str, ...], ServerAccess] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def _of_tenant(self, tag: str, tenant: TenantAccess) -> ServerAccess | None:
        try:
            return self._access(Credentials(self._section, tenant))
        except ConfigurationError as error:
            log.error("[mcp.%s.tenants.%s]: nothing is asked for this tenant: %s", self._label, tag, error)
            return None

    def _access(self, credentials: Credentials) -> ServerAccess:
        return ServerAccess(credentials, self._connect(credentials))

    @contextmanager
    def using(self, context: ToolContext) -> Iterator[ServerAccess]:
        """The access for a call, within a block.

        Raises:
            ToolError: the server is not asked for this tenant, or the conversation lacks a secret.
        """
        access = self._of(context)
        access.users += 1
        try:
            yield access
        finally:
            access.users -= 1
            self._leave_idle()

    def _of(self, context: ToolContext) -> ServerAccess:
        # The id of a run says whose it is: no other tenant can have said it.
        tag = tenant_of(context.run_id)
        access = self._of_tenants.get(tag) if tag in self._of_tenants or self._section.tenants_only else self.own
        if access is None:
            raise ToolError(f"{self._label} is not asked for this tenant: nothing was called")
        values = access.credentials.of_conversation(context)
        if not values:
            return access
        key = (tag, context.conversation_id, *values.values())
        known = self._of_conversations.pop(key, None)
        known = known or self._access(access.credentials.with_headers(values))
        self._of_conversations[key] = known
        return known

    def _leave_idle(self) -> None:
        """Close idle ones, the oldest first, beyond as many as are kept."""
        idle = [key for key, access in self._of_conversations.items() if not access.users]
        for key in idle[: max(0, len(self._of_conversations) - self._most)]:
            task = asyncio.create_task(self._of_conversations.pop(key).connection.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def rest(self) -> None:
        """Close all connections; the next request opens its own again."""
        await asyncio.gather(*(access.connection.rest() for access in self._every), *self._closing)

    async def close(self) -> None:
        """Close all."""
        await asyncio.gather(*(access.connection.close() for access in self._every), *self._closing)

    @property
    def _every(self) -> tuple[ServerAccess, ...]:
        return (self.own, *filter(None, self._of_tenants.values()), *self._of_conversations.values())


def environment_of(section: McpServer) -> dict[str, str]:
    """The variables that a process gets.

    Raises:
        ConfigurationError: one is not set.
    """
    values = {name: required(name) for name in section.env}
    register_secrets(value for name, value in values.items() if _SECRET.search(name))
    return values
