"""The credentials with which a server is asked: none, secrets in headers, or tokens for a client's secret."""

from __future__ import annotations

import asyncio
import base64
import copy
import re
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import orjson

from palaver.errors.headers import retry_after
from palaver.schemas.fields import fits_a_header
from palaver.secrets.redaction import register_secrets
from palaver.tools import ToolContext

from ..tables import required, required_for_header
from .http_client import answering, http_client, whole
from .section import ClientCredentials, McpServer, TenantAccess
from .wire import InvalidAnswer, Lost, NeverSent, RequestRefused

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


def environment_of(section: McpServer) -> dict[str, str]:
    """The variables that a process gets.

    Raises:
        ConfigurationError: one is not set.
    """
    values = {name: required(name) for name in section.env}
    register_secrets(value for name, value in values.items() if _SECRET.search(name))
    return values
