"""A table ``[mcp.NAME]``: one server, and which of its tools are taken how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from palaver.schemas.fields import Strict
from palaver.schemas.mcp_servers import OF_CONNECTIONS, OF_MESSAGES, HeaderName
from palaver.vocabulary.addresses import host_and_port, is_ip, is_loopback, never_asked
from palaver.vocabulary.limits import limit_of
from workers.sources.services import ServiceTable
from workers.sources.tables import HeaderFromSecret, MaxResult, Timeout, Variable


def _reachable(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError("must begin with https:// or http://")
    host, _ = host_and_port(url)
    if is_ip(host) and never_asked(host, loopback=True):
        raise ValueError("is an address at which nothing is asked")
    if parts.fragment:
        raise ValueError("has a #fragment, which is never sent")
    return url


def is_plain(url: str) -> bool:
    """Tell whether ``url`` is that of another machine, without TLS."""
    return urlsplit(url).scheme == "http" and not is_loopback(host_and_port(url)[0])


Url = Annotated[str, StringConstraints(max_length=2048), AfterValidator(_reachable)]
Tag = Annotated[str, StringConstraints(pattern=r"^[0-9a-z]{6}$")]
_MONTH: Final = 30 * 86_400


class Override(ServiceTable):
    """``[mcp.NAME.tools.TOOL]``: the operator's word about one tool."""

    idempotent: bool | None = None
    risky: bool | None = None
    timeout: Timeout | None = None
    max_result: MaxResult | None = None


class ClientCredentials(Strict):
    """``[mcp.NAME.oauth]``: OAuth 2.1 client credentials. Every address is the operator's, none the server's."""

    token_url: Url
    client_id: Annotated[str, StringConstraints(min_length=1, max_length=512)]
    client_secret_env: Variable
    method: Literal["basic", "post"] = "basic"
    scope: str | None = None
    resource: str | None = None
    """The service that the token is for (RFC 8707); the server's URL if it is left out."""


Headers = Mapping[HeaderName, HeaderFromSecret]
"""Secrets that go along with each request to a ``url``: of the environment, or of the conversation of a call."""


class TenantAccess(Strict):
    """``[mcp.NAME.tenants.TAG]``: the credentials with which the server is asked for one tenant, in place of those of
    the table."""

    headers: Headers = Field(default_factory=dict)
    oauth: ClientCredentials | None = None

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.headers and self.oauth is None:
            raise ValueError("needs headers or oauth")
        return self


class McpServer(ServiceTable):
    """A table ``[mcp.NAME]``."""

    url: Url | None = None
    command: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)] | None = None
    env: Annotated[tuple[Variable, ...], Field(max_length=64)] = ()
    """Variables that a ``command`` gets."""
    headers: Headers = Field(default_factory=dict)
    oauth: ClientCredentials | None = None
    tenants: Annotated[Mapping[Tag, TenantAccess], Field(max_length=1_000)] = Field(default_factory=dict)
    """By the tags of tenants, as their runs have them in their ids."""
    tenants_only: bool = False
    """It is asked for these tenants, and for no others."""
    plain_http: bool = False
    """Other machines are asked without TLS."""
    trusted: bool = False
    """Its word counts about what its tools do."""
    allow: Annotated[tuple[str, ...], Field(max_length=limit_of("mcp_tools"))] | None = None
    """The tools that are taken, ``*`` stands for others; all if it is left out."""
    risky: bool | None = None
    timeout: Timeout = 60.0
    max_result: MaxResult | None = None
    connect_timeout: Annotated[float, Field(gt=0, le=20)] = 10.0
    """Seconds until it has to be there: a command to start, and its list to be read."""
    ask_timeout: Annotated[float, Field(ge=0, le=_MONTH)] = 3600.0
    """Seconds that a question of its to a person waits for the answer; 0: it may not ask."""
    task_timeout: Annotated[float, Field(ge=0, le=_MONTH)] = 86_400.0
    """Seconds that a task may take that it makes of a call; 0: it may make none."""
    pin: bool = False
    """Only tools whose digest is in ``pins`` are there."""
    pins: Mapping[str, str] = Field(default_factory=dict)
    tools: Mapping[str, Override] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.url is None) == (self.command is None):
            raise ValueError("needs either url or command")
        if self.command is not None and (self.headers or self.oauth or self.tenants):
            raise ValueError("a command has no headers: name its variables in env")
        if self.url is not None and self.env:
            raise ValueError("env is for a command; a url has headers")
        if self.tenants_only and not self.tenants:
            raise ValueError("tenants_only: there are no tenants")
        everybody: list[McpServer | TenantAccess] = [self, *self.tenants.values()]
        for who in everybody:
            if who.oauth and any(name.lower() == "authorization" for name in who.headers):
                raise ValueError("has both oauth and a header Authorization: take one")
            if taken := sorted(name for name in who.headers if name.lower() in OF_CONNECTIONS | OF_MESSAGES):
                raise ValueError(f"the header {taken[0]} is of the request itself")
        addresses = [self.url, *(who.oauth and who.oauth.token_url for who in everybody)]
        if not self.plain_http and any(is_plain(url) for url in addresses if url):
            raise ValueError("http:// sends secrets in plain text: take https://, or say plain_http = true")
        return self
