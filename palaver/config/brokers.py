"""Facts in the address of a broker: whether it has priorities, how it is trusted, and how kombu spells it."""

from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from palaver.errors import ConfigurationError

_CERT_REQS: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def has_priorities(url: str) -> bool:
    """Tell whether the broker at ``url`` is a RabbitMQ. Elsewhere what is recovered has queues of its own."""
    return urlsplit(url).scheme in ("amqp", "amqps")


def is_redis(url: str) -> bool:
    """Tell whether the broker at ``url`` is a Redis: its queues are lists."""
    return urlsplit(url).scheme in ("redis", "rediss", "unix")


def tls_options(url: str) -> dict[str, Any]:
    """Return how a rediss:// or amqps:// broker is trusted, by publishers and workers alike: the ``ssl_…`` options of
    its URL.

    Its certificate is verified unless they say otherwise; kombu's own default is not to. Empty for other brokers.

    Raises:
        ConfigurationError: the URL has an option that the store may understand, but kombu does not.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss", "amqp", "amqps"):
        return {}
    encrypted = parts.scheme in ("rediss", "amqps")
    options: dict[str, Any] = {"ssl_cert_reqs": ssl.CERT_REQUIRED} if encrypted else {}
    for name, value in parse_qsl(parts.query):
        if not encrypted if name.startswith("ssl_") else parts.scheme.startswith("redis"):
            only = "only ssl_… with rediss://" if parts.scheme.startswith("redis") else "that is for amqps://"
            raise ConfigurationError(f"a {parts.scheme}:// broker takes no `{name}`; {only}")
        if name.startswith("ssl_"):
            options[name] = value
    if "ssl_check_hostname" in options:
        options["ssl_check_hostname"] = options["ssl_check_hostname"].lower() != "false"
    required = options.get("ssl_cert_reqs")
    if isinstance(required, str):
        try:
            options["ssl_cert_reqs"] = _CERT_REQS[required.lower().removeprefix("cert_")]
        except KeyError:
            raise ConfigurationError(f"`ssl_cert_reqs` is none, optional or required, not {required!r}") from None
    if parts.scheme == "amqps":
        if options.pop("ssl_check_hostname", True) and options["ssl_cert_reqs"] is ssl.CERT_REQUIRED:
            # None: that of the URL.
            options["ssl_server_hostname"] = None
        options = {name.removeprefix("ssl_"): value for name, value in options.items()}
    return options


def kombu_url(url: str) -> str:
    """Return ``url`` as kombu wants it: a socket under another name, RabbitMQ without the options of `tls_options`."""
    if url.startswith("unix://"):
        return url.replace("unix://", "redis+socket://", 1).replace("?db=", "?virtual_host=")
    if not has_priorities(url):
        return url
    address, _, options = url.partition("?")
    others = "&".join(option for option in options.split("&") if not option.startswith("ssl_"))
    return f"{address}?{others}" if others else address
