"""The environment of connections to the API: a proxy, and the certificates that are trusted.

Read here and not by httpx, which reads every variable for every address, and fails on what it does not need.
"""

from __future__ import annotations

import importlib.util
import os
import re
import ssl
from ipaddress import ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx

from palaver.errors import ConfigurationError
from palaver.vocabulary.addresses import is_loopback

_PORTS: Final = {"http": 80, "https": 443}
_BRACKETS: Final = re.compile(r"\[([^\]]*)\](?=/|$)")


def proxy_for(url: httpx.URL) -> httpx.Proxy | None:
    """Return the proxy for an address: ``HTTP_PROXY`` or ``HTTPS_PROXY`` by its scheme, else ``ALL_PROXY``, also in
    small letters, or what the system says. None without one, for this machine, and for what ``NO_PROXY`` lists.

    Raises:
        ConfigurationError: no proxy can be had from the variable. It says the name, and not the value, which may have
            a password.
    """
    variable, address = _named(url)
    if not address:
        return None
    way_out = f"mend it, unset it, or list {url.host} in NO_PROXY"
    try:
        proxy = httpx.Proxy(address if "://" in address else f"http://{address}")
        if not proxy.url.host or "%" in proxy.url.host:
            raise ValueError
    except (httpx.InvalidURL, ValueError):
        raise ConfigurationError(
            f"the proxy that {variable} names is no address such as http://proxy.example.com:3128: {way_out}"
        ) from None
    if proxy.url.scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
        raise ConfigurationError(
            f"{variable} names a SOCKS proxy, for which a package is missing: pip install 'httpx[socks]'; or {way_out}"
        )
    return proxy


def through(url: httpx.URL) -> str:
    """Return the words about the proxy for an address, which a sentence about it ends with; empty without one."""
    variable, address = _named(url)
    return f" (through the proxy that {variable} names)" if address else ""


def _named(url: httpx.URL) -> tuple[str, str]:
    """The name of the variable, and the proxy in it; empty if none is asked for this address."""
    proxies = getproxies()
    kind = url.scheme if proxies.get(url.scheme) else "all"
    if is_loopback(url.host) or any(_lists(entry, url) for entry in _entries(proxies.get("no", ""))):
        return "", ""
    names = (name for name in sorted(os.environ, reverse=True) if name.lower() == f"{kind}_proxy")
    return next(names, "the system"), proxies.get(kind, "")


def _entries(listed: str) -> list[str]:
    return [entry for entry in re.split(r"[\s,]+", listed.lower()) if entry]


def _lists(entry: str, url: httpx.URL) -> bool:
    """Tell whether an entry of ``NO_PROXY`` means the address: ``*``, a domain with all below it, an IP address or a
    network of them; with a port or a scheme, or without. What is none of these means nothing."""
    scheme, _, place = entry.rpartition("://")
    if scheme not in ("", "all", url.scheme):
        return False
    try:
        return ip_address(url.host) in ip_network(_BRACKETS.sub(r"\1", place), strict=False)
    except ValueError:
        pass
    try:
        split = urlsplit(f"//{place}")
        name, port = (split.hostname or "").removeprefix("*").removeprefix("."), split.port
    except ValueError:
        return False
    if port not in (None, url.port or _PORTS[url.scheme]):
        return False
    host = url.host.lower()
    return place == "*" or (bool(name) and (host == name or host.endswith(f".{name}")))


def authorities_for(url: httpx.URL, proxy: httpx.Proxy | None) -> ssl.SSLContext:
    """Return the authorities that are trusted: those of ``SSL_CERT_FILE`` or ``SSL_CERT_DIR``, else those that httpx
    brings. None at all where no TLS is spoken.

    Raises:
        ConfigurationError: the variable leads to none.
    """
    if url.scheme != "https" and (proxy is None or proxy.url.scheme != "https"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name, holds in (("SSL_CERT_FILE", os.path.isfile), ("SSL_CERT_DIR", os.path.isdir)):
        place = os.environ.get(name)
        if place and not holds(place):
            raise ConfigurationError(f"{name} is {place!r}, and nothing is there that has certificates")
        if place:
            break
    try:
        return httpx.create_ssl_context()
    except (OSError, ssl.SSLError):
        raise ConfigurationError(f"{name} is {place!r}, and no certificates can be read there") from None
