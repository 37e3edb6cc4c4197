"""Documents of an issuer, fetched with a guard: the address of its keys is what another party wrote.

A name is looked up here, and what was looked up is what is connected to: a name that leads elsewhere a moment later
does not lead there. The certificate has to be that of the name. Nothing is redirected, and no proxy is asked.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final

import httpx
import orjson

from palaver.errors import PalaverError
from palaver.vocabulary.addresses import host_and_port, is_inner, is_loopback, never_asked
from palaver.vocabulary.limits import count_exceeded, limit_of

_LONGEST: Final = limit_of("issuer_document")
_URL: Final = 2_000
_CONNECT: Final = 2.0
"""Seconds for one of the addresses of a name."""
_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""A function that returns the addresses of a host, for connections to a port."""


class Unfetched(PalaverError):
    """A document of the issuer is not to be had; says why."""


async def resolved(host: str, port: int) -> Sequence[str]:
    """The addresses of a host. Raises OSError if it has none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(place[0]) for *_, place in found]


class Documents:
    """JSON objects at addresses of the public network, or at hosts that the operator names."""

    def __init__(self, private: Collection[str], resolve: Resolve = resolved) -> None:
        self._private = frozenset(private)
        """Hosts that may be on this machine, or in a private network."""
        self._resolve = resolve

    async def read(self, url: str) -> dict[str, Any]:
        """Return the object at ``url``. There is no deadline: that is for the caller.

        Raises:
            Unfetched: there is none, or it may not be asked.
        """
        try:
            return await self._read(url)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise Unfetched(f"{_shown(url)} cannot be asked: {type(error).__name__}: {str(error)[:200]}") from error

    async def _read(self, url: str) -> dict[str, Any]:
        host, port = self._place(url)
        allowed = await self._addresses(host, port)
        broken: httpx.ConnectError | httpx.ConnectTimeout | None = None
        async with httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(verify=await asyncio.to_thread(_authorities), trust_env=False),
            timeout=httpx.Timeout(None, connect=_CONNECT),
            follow_redirects=False,
            trust_env=False,
        ) as client:
            for address in allowed:
                try:
                    return await _object(client, httpx.URL(url), host, address)
                except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                    broken = error
        assert broken is not None
        raise broken

    def _place(self, url: str) -> tuple[str, int]:
        scheme = url.partition("://")[0]
        if scheme not in _PORTS or len(url) > _URL:
            raise Unfetched(f"{_shown(url)} is no https:// address")
        try:
            host, port = host_and_port(url)
        except ValueError as error:
            raise Unfetched(f"{_shown(url)} {error}") from None
        if scheme == "http" and not (is_loopback(host) and host in self._private):
            raise Unfetched(f"{_shown(url)} is no https:// address")
        return host, port or _PORTS[scheme]

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        found = dict.fromkeys(await self._resolve(host, port))
        allowed = [address for address in found if self._may_ask(host, address)]
        if not allowed:
            raise Unfetched(
                f"{host} leads to an address that is not asked: one of this machine or of a private network, unless "
                "PALAVER_OIDC_PRIVATE_HOSTS has the host, or one of those where clouds keep keys"
            )
        return allowed

    def _may_ask(self, host: str, address: str) -> bool:
        return not never_asked(address, loopback=True) if host in self._private else not is_inner(address)


@cache
def _authorities() -> ssl.SSLContext:
    """Return the authorities that the system trusts, or SSL_CERT_FILE. It takes a while: not on the loop."""
    return ssl.create_default_context()


async def _object(client: httpx.AsyncClient, url: httpx.URL, host: str, address: str) -> dict[str, Any]:
    request = client.build_request(
        "GET",
        url.copy_with(host=address),
        headers={
            "host": url.netloc.decode("ascii"),
            "accept": "application/json",
            # A small body must not become a large one.
            "accept-encoding": "identity",
        },
        extensions={"sni_hostname": host},
    )
    response = await client.send(request, stream=True)
    try:
        if response.status_code != httpx.codes.OK:
            raise Unfetched(
                f"{_shown(str(url))} answered HTTP {response.status_code}, and nothing else than 200 will do"
            )
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > _LONGEST:
                count_exceeded("issuer_document")
                raise Unfetched(f"{_shown(str(url))} answered more than {_LONGEST} bytes")
    finally:
        await response.aclose()
    try:
        document = orjson.loads(bytes(body))
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        raise Unfetched(f"{_shown(str(url))} answered what is no JSON object")
    return document


def _shown(url: str) -> str:
    return url.partition("?")[0][:200]
