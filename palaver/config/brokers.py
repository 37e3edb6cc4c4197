"""Facts in the address of a broker: whether it has priorities, how it is trusted, and how kombu spells it."""

from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from palaver.config.sentinels import ENCRYPTED, PLAIN, by_sentinels, sentinels_of
from palaver.config.tls import verification
from palaver.errors import ConfigurationError

BY_SENTINELS: Final = "redis-sentinel"
"""The scheme of a broker that Sentinels know, for kombu: its own `sentinel` remains that of others' applications."""


def has_priorities(url: str) -> bool:
    """Tell whether the broker at ``url`` is a RabbitMQ. Elsewhere what is recovered has queues of its own."""
    return urlsplit(url).scheme in ("amqp", "amqps")


def is_redis(url: str) -> bool:
    """Tell whether the broker at ``url`` is a Redis: its queues are lists."""
    return urlsplit(url).scheme in ("redis", "rediss", "unix", PLAIN, ENCRYPTED)


def user_of(url: str) -> str:
    """Return the user that the address of a Redis names; empty for the default one."""
    return unquote(url.partition("://")[2].partition("/")[0].rpartition("@")[0].partition(":")[0])


def tls_options(url: str) -> dict[str, Any]:
    """Return how a rediss://, rediss+sentinel:// or amqps:// broker is trusted, by publishers and workers alike: the
    ``ssl_…`` options of its URL.

    Its certificate is verified unless they say otherwise; kombu's own default is not to. Empty for other brokers.

    Raises:
        ConfigurationError: the URL has an option that the store may understand, but kombu does not.
    """
    if by_sentinels(url):
        return dict(sentinels_of(url).tls)
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss", "amqp", "amqps"):
        return {}
    encrypted = parts.scheme in ("rediss", "amqps")
    given: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts.query):
        if not encrypted if name.startswith("ssl_") else parts.scheme.startswith("redis"):
            only = "only ssl_… with rediss://" if parts.scheme.startswith("redis") else "that is for amqps://"
            raise ConfigurationError(f"a {parts.scheme}:// broker takes no `{name}`; {only}")
        if name.startswith("ssl_"):
            given.append((name, value))
    if not encrypted:
        return {}
    try:
        options = verification(given)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    if parts.scheme == "amqps":
        if options.pop("ssl_check_hostname", True) and options["ssl_cert_reqs"] is ssl.CERT_REQUIRED:
            # None: that of the URL.
            options["ssl_server_hostname"] = None
        options = {name.removeprefix("ssl_"): value for name, value in options.items()}
    return options


def redis_py_options(url: str) -> tuple[str, dict[str, Any]]:
    """Return the address of a broker that is a Redis, and beside it, in words that kombu and redis-py both understand,
    what stood behind ``?``. Raises ConfigurationError as `tls_options`."""
    if by_sentinels(url):
        # The part that makes its connections reads all of it.
        return url, {}
    options = tls_options(url)
    return url.partition("?")[0] if options else url, options


def kombu_url(url: str) -> str:
    """Return ``url`` as kombu wants it: a socket under another name, RabbitMQ without the options of `tls_options`, and
    of Sentinels the first, with what remains in the options of the transport."""
    if by_sentinels(url):
        return _sentinel_url(url)
    if url.startswith("unix://"):
        return url.replace("unix://", "redis+socket://", 1).replace("?db=", "?virtual_host=")
    if not has_priorities(url):
        return url
    address, _, options = url.partition("?")
    others = "&".join(option for option in options.split("&") if not option.startswith("ssl_"))
    return f"{address}?{others}" if others else address


def _sentinel_url(url: str) -> str:
    sentinels = sentinels_of(url)
    login = sentinels.login
    user = f"{quote(login.username or '', safe='')}:{quote(login.password, safe='')}@" if login else ""
    return f"{BY_SENTINELS}://{user}{sentinels.places[0]}/{sentinels.db}"
