"""Addresses of webhooks that requests bring: those at which one may be."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from palaver.schemas.endpoints import is_listed
from palaver.vocabulary.addresses import host_and_port, leads_within

_SCHEMES: Final = ("http://", "https://")
_PORTS: Final = (None, 80, 443)


def webhook_fault(url: str, hosts: Collection[str]) -> str | None:
    """Return the fault of the URL of a webhook that a request brings, where these ``hosts`` are allowed though they are
    of a private network, or have another port; None if there is none."""
    if not url.lower().startswith(_SCHEMES) or not _is_written_as_sent(url):
        return "must begin with http:// or https://, and be written as it is sent"
    if "#" in url:
        return "must have no fragment"
    try:
        _, port = host_and_port(url.partition("?")[0])
    except ValueError as error:
        return str(error)
    if is_listed(url, hosts):
        return None
    if port not in _PORTS:
        return "must have the usual port, or be listed in PALAVER_WEBHOOK_HOSTS"
    if leads_within(url):
        return "leads into a private network: its host must be listed in PALAVER_WEBHOOK_HOSTS"
    return None


def _is_written_as_sent(url: str) -> bool:
    """Tell whether nothing in it would have to be changed, and who sends to it can read it."""
    # Loaded with the first webhook.
    from httpx import URL, InvalidURL

    if not url.isascii() or not url.isprintable() or " " in url:
        return False
    try:
        URL(url)
    except InvalidURL:
        return False
    return True
