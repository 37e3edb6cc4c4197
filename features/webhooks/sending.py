"""One attempt: a request over a connection of its own, and as much of the answer as is kept."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import aiohttp
import httpx

from palaver.errors import ConfigurationError
from palaver.errors.headers import retry_after
from palaver.schemas.endpoints import is_listed
from palaver.vocabulary.limits import limit_of
from workers.connections.guarded_resolver import GuardedResolver
from workers.connections.lookup_threads import LookupsBusy, LookupThreads
from workers.connections.pool import open_pool
from workers.connections.transport import AiohttpTransport

from .addresses import webhook_fault
from .outcomes import ReceiverAnswer
from .terms import TIMEOUT

_REDIRECTS: Final = range(300, 400)


class Sender:
    """Sends to webhooks: to those of requests only where they may be, to those of the operator's file anywhere."""

    def __init__(self, hosts: Collection[str], *, timeout: float = TIMEOUT) -> None:
        """``hosts`` are those of private networks at which webhooks may be."""
        self._hosts = hosts
        self._timeout = timeout
        names = LookupThreads()
        self._outward = open_pool(GuardedResolver("the webhook", outward=True, names=names), sent_once=True)
        self._inward = open_pool(GuardedResolver("the webhook", names=names), sent_once=True)
        self._trusted = open_pool(LookupThreads(), sent_once=True)

    async def send(self, url: str, headers: Mapping[str, str], body: bytes, *, trusted: bool) -> ReceiverAnswer:
        """Make an attempt, which takes 15 seconds at most, whatever the receiver does. Redirects are not followed."""
        if not trusted and webhook_fault(url, self._hosts) is not None:
            return ReceiverAnswer(None, "address_not_allowed")
        pool = self._pool(url, trusted=trusted)
        answer = ReceiverAnswer(None, "timeout")
        try:
            async with asyncio.timeout(self._timeout):
                response = await pool.handle_async_request(_request(url, headers, body, self._timeout))
                try:
                    answer = _head(response)
                    return await _whole(answer, response)
                finally:
                    await response.aclose()
        except TimeoutError:
            # It has begun to answer: what it said counts.
            return answer
        except (
            *(httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError),
            *(OSError, ValueError, ConfigurationError),
        ) as error:
            return answer if answer.status is not None else ReceiverAnswer(None, _kind(error))

    def _pool(self, url: str, *, trusted: bool) -> AiohttpTransport:
        if trusted:
            return self._trusted
        return self._inward if is_listed(url, self._hosts) else self._outward

    async def close(self) -> None:
        """Close all connections."""
        for pool in (self._outward, self._inward, self._trusted):
            await pool.aclose()


def _request(url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> httpx.Request:
    extensions = {"timeout": httpx.Timeout(None, connect=timeout).as_dict()}
    return httpx.Request(
        "POST", url, headers={**headers, "accept-encoding": "identity"}, content=body, extensions=extensions
    )


def _head(response: httpx.Response) -> ReceiverAnswer:
    status = response.status_code
    error = "redirect" if status in _REDIRECTS else None
    return ReceiverAnswer(status, error, retry_after=retry_after(response.headers))


async def _whole(answer: ReceiverAnswer, response: httpx.Response) -> ReceiverAnswer:
    """The answer with the beginning of its body."""
    most, body = limit_of("webhook_answer"), bytearray()
    async for piece in response.stream:  # type: ignore[union-attr]
        body += piece
        if len(body) >= most:
            break
    return ReceiverAnswer(
        answer.status, answer.error, bytes(body[:most]).decode("utf-8", "replace"), answer.retry_after
    )


def _kind(error: Exception) -> str:
    """Why there is no answer, in a word: what a resolver or a server says may tell of the network within."""
    causes = [*_causes(error)]
    if any(isinstance(cause, LookupsBusy) for cause in causes):
        return "look_ups_busy"
    for found in causes:
        match found:
            case ConfigurationError():
                return "address_not_allowed"
            case ssl.SSLError() | ssl.CertificateError() | aiohttp.ClientSSLError():
                return "tls"
            case TimeoutError() | httpx.TimeoutException():
                return "timeout"
            case aiohttp.ClientConnectorDNSError():
                return "unknown_host"
            case aiohttp.ClientResponseError() | aiohttp.InvalidURL() | httpx.InvalidURL():
                return "protocol_error"
    return "connection"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
