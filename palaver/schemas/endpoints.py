"""Providers that come with an agent: an address that the operator allows, and a key that stays secret."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final
from urllib.parse import urlsplit, urlunsplit

from pydantic import AfterValidator

from palaver.schemas.fields import AtMost, HeaderSecret, Strict
from palaver.schemas.protocols import ProtocolName
from palaver.vocabulary.addresses import host_and_port, is_ip, never_asked

INLINE: Final = "inline"
"""The provider's part of a model that is asked at an agent's ``endpoint``."""
_PORTS: Final = {"http": 80, "https": 443}


def as_compared(url: str) -> str:
    """A URL in the one way in which it is compared: without the usual port, its host as `host_and_port` has it.

    Raises:
        ValueError: it is none that may be asked; says why.
    """
    place = urlsplit(url)
    if place.scheme not in _PORTS:
        raise ValueError("must begin with http:// or https://")
    if place.query or place.fragment or "?" in url or "#" in url:
        raise ValueError("must have neither a query nor a fragment")
    host, port = host_and_port(url)
    shown = f"[{host}]" if ":" in host else host
    where = shown if port in (None, _PORTS[place.scheme]) else f"{shown}:{port}"
    return urlunsplit((place.scheme, where, place.path, "", ""))


def _without_slash(base_url: str) -> str:
    return as_compared(base_url).rstrip("/")


class Endpoint(Strict):
    """The address of an agent's models ``inline/NAME``. The operator says which hosts are allowed
    (``PALAVER_INLINE_PROVIDER_HOSTS``)."""

    base_url: Annotated[str, AtMost("base_url"), AfterValidator(_without_slash)]
    api_key: HeaderSecret | None = None
    """The key. It is taken and never shown: it is stored with the conversation, for this address. Without one, the key
    that the conversation has for this address, if any."""
    protocol: ProtocolName = "chat_completions"

    @property
    def host(self) -> str:
        """The host, as it is compared."""
        return host_and_port(self.base_url)[0]

    @property
    def name(self) -> str:
        """The name of its provider: it has the host in it, and there are no more hosts than the operator lists."""
        return f"{INLINE}:{self.host}"

    @property
    def origin(self) -> str:
        """Its scheme and port, which with the host say who answers there."""
        scheme, (_, port) = urlsplit(self.base_url).scheme, host_and_port(self.base_url)
        return f"{scheme}:{port or _PORTS[scheme]}"

    @property
    def secret_name(self) -> str:
        """The name under which the conversation stores its key: a key goes nowhere but to the address that it came
        with."""
        return f"endpoint:{self.base_url}"

    def called(self, model: str) -> str:
        """A model by its provider's name, if it is asked here."""
        provider, _, name = model.partition("/")
        return f"{self.name}/{name}" if provider == INLINE else model

    def allowed_by(self, hosts: Collection[str]) -> bool:
        """Tell whether its host is one of these: with its very port, or without one and the usual port."""
        return is_listed(self.base_url, hosts)


def is_listed(url: str, hosts: Collection[str]) -> bool:
    """Tell whether the host of a URL is one of these: with its very port, or without one and the usual port."""
    scheme, host, port = urlsplit(url).scheme, *host_and_port(url.partition("?")[0])
    usual = _PORTS[scheme]
    return listed(host, port or usual) in hosts or (port in (None, usual) and listed(host, None) in hosts)


def listed(host: str, port: int | None) -> str:
    """A host, perhaps with a port, as an entry of the list of hosts."""
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"


def listed_host(entry: str) -> str:
    """An entry of the list of hosts as it is compared: ``HOST`` or ``HOST:PORT``.

    Raises:
        ValueError: it is none; says why.
    """
    if "/" in entry or "*" in entry:
        raise ValueError("is no host or host:port: write them one by one, without http:// and without a path")
    bare = entry.count(":") > 1 and not entry.startswith("[")
    host, port = host_and_port(f"[{entry}]" if bare else entry)
    if is_ip(host) and never_asked(host, loopback=True):
        raise ValueError("is an address at which nothing is ever asked")
    return listed(host, port)
