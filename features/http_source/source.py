"""The source of tools over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

import aiohttp
import httpx

from palaver.config.settings import Settings
from palaver.errors import ConfigurationError, ToolError, ToolFailure, ToolTimeout
from palaver.errors.sentences import IN_DOUBT
from palaver.late import dataclass
from palaver.secrets.redaction import register_secrets
from palaver.tools import ToolContext, ToolDeclaration
from workers.connections.guarded_resolver import GuardedResolver
from workers.connections.pool import open_pool
from workers.connections.transport import AiohttpTransport
from workers.sources.containment import ToolAnswer, contained
from workers.sources.guests import VARIABLE, SourceFinding, ToolsOfFile
from workers.sources.port import RunBlocking, ToolSource
from workers.sources.services import described, errors_of

from .answers import answer_of, unanswered
from .requests import Requests
from .tables import HttpSection, HttpTool

_REDIRECTS: Final = 3
"""Redirects that are followed: of requests that change nothing, to the same service."""
_BROKEN: Final = (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError, ConfigurationError)
"""Raised where a request gets no whole answer."""
_SET_IT: Final = "Set the variable where tools workers run."
_REACH_IT: Final = "See that base_url is right, and that the service can be reached from here."
_LOOK_AT: Final = "It does not take the headers: look at the secret in them."
_REFUSED: Final = frozenset({401, 403})
"""Statuses of a service that does not take the headers."""


class HttpService:
    """A service, with connections of its own."""

    def __init__(self, name: str, section: HttpSection) -> None:
        """Raises:
        ConfigurationError: a secret of the environment is missing.
        """
        self._section = section
        try:
            self._requests = Requests(section)
        except ConfigurationError as error:
            raise ConfigurationError(f"{VARIABLE}: http.{name}: {error}") from None
        register_secrets(self._requests.secrets)
        resolver = GuardedResolver(f"[http.{name}]", outward=not section.private)
        self._transport: AiohttpTransport = open_pool(resolver, sent_once=True)

    @property
    def knows_callers(self) -> bool:
        """True if it may refuse a caller without a conversation."""
        return self._requests.of_conversations

    async def call(
        self, tool: HttpTool, declared: ToolDeclaration, arguments: Mapping[str, Any], context: ToolContext
    ) -> object:
        """The answer to a call.

        Raises:
            ToolFailure: there is none, or it is a refusal.
        """
        request = self._requests.of(tool, arguments, context)
        try:
            for _ in range(_REDIRECTS):
                response = await self._transport.handle_async_request(request)
                try:
                    further = self._further(tool, request, response)
                    if further is None:
                        return await answer_of(
                            tool, response, errors_of(tool, self._section), idempotent=declared.idempotent
                        )
                    request = further
                finally:
                    await response.aclose()
        except _BROKEN as error:
            raise unanswered(error, idempotent=declared.idempotent) from error
        raise ToolError("the service leads from one address to the next")

    def _further(self, tool: HttpTool, request: httpx.Request, response: httpx.Response) -> httpx.Request | None:
        """The request that an answer asks for instead."""
        if tool.method not in ("GET", "HEAD") or not response.has_redirect_location:
            return None
        return self._requests.moved(request, response.headers["location"])

    async def look(self) -> tuple[int, float]:
        """The status of its answer to a ``HEAD``, and the seconds until that came.

        Raises:
            ToolFailure: there was none.
        """
        begun = time.monotonic()
        try:
            response = await self._transport.handle_async_request(self._requests.look())
        except _BROKEN as error:
            raise unanswered(error, idempotent=True) from error
        await response.aclose()
        return response.status_code, time.monotonic() - begun

    async def close(self) -> None:
        """Close its connections."""
        await self._transport.aclose()


@dataclass(frozen=True, slots=True)
class _Tool:
    service: HttpService
    table: HttpTool
    declared: ToolDeclaration


class HttpTools(ToolsOfFile):
    """The tools of these services."""

    def __init__(self, services: Mapping[str, HttpService], sections: Mapping[str, HttpSection]) -> None:
        tools = [
            _Tool(services[name], section.tools[tool], declared)
            for name, section in sections.items()
            for tool, declared in _declarations(name, section).items()
        ]
        self.declarations: Sequence[ToolDeclaration] = tuple(tool.declared for tool in tools)
        self._tools = {tool.declared.name: tool for tool in tools}

    async def call(self, declared: ToolDeclaration, arguments: Mapping[str, Any], context: ToolContext) -> ToolAnswer:
        """As ``ToolSource``."""
        tool = self._tools[declared.name]
        try:
            return await contained(declared, partial(tool.service.call, tool.table, declared, arguments, context))
        except ToolTimeout as error:
            if declared.idempotent:
                raise
            raise ToolTimeout(f"{error}.{IN_DOUBT}") from None


def _declarations(name: str, section: HttpSection) -> Mapping[str, ToolDeclaration]:
    return {tool: table.declaration(tool, name, section) for tool, table in section.tools.items()}


class _Http:
    section = HttpSection

    @asynccontextmanager
    async def open(
        self, settings: Settings, sections: Mapping[str, HttpSection], run_blocking: RunBlocking | None
    ) -> AsyncIterator[ToolSource]:
        async with AsyncExitStack() as opened:
            services = {name: HttpService(name, section) for name, section in sections.items()}
            for service in services.values():
                opened.push_async_callback(service.close)
            yield HttpTools(services, sections)

    async def check(self, settings: Settings, sections: Mapping[str, HttpSection]) -> AsyncIterator[SourceFinding]:
        for name, section in sections.items():
            table, tools = f"http.{name}", tuple(section.tools)
            try:
                service = HttpService(name, section)
            except ConfigurationError as error:
                yield SourceFinding(table, ok=False, found=f"{error}.", tools=tools, advice=_SET_IT)
                continue
            try:
                async with asyncio.timeout(section.timeout):
                    status, seconds = await service.look()
            except (ToolFailure, TimeoutError) as error:
                found = str(error) or f"It does not answer within {section.timeout:g} s"
                yield SourceFinding(table, ok=False, found=f"{found}.", tools=tools, advice=_REACH_IT)
            else:
                answers = f"It answers HTTP {status} to a HEAD of its address, in {seconds * 1000:.0f} ms."
                found = " ".join([answers, *described(_declarations(name, section))])
                refused = status in _REFUSED and not service.knows_callers
                yield SourceFinding(table, ok=not refused, found=found, tools=tools, advice=_LOOK_AT * refused)
            finally:
                await service.close()


KIND = _Http()
