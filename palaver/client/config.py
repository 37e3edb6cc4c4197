"""The address and the key of the API: arguments first, then the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from palaver.client.environment import authorities_for, proxy_for
from palaver.errors import ConfigurationError

DEFAULT_URL: Final = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class Config:
    """The API's URL and the key for it."""

    url: str
    api_key: str | None

    @classmethod
    def of(cls, base_url: str | None, api_key: str | None) -> Config:
        """From arguments, else ``PALAVER_URL`` and ``PALAVER_API_KEY``, else the local API without a key.

        Raises:
            ConfigurationError: the value is no URL, or no key.
        """
        url = (base_url or os.environ.get("PALAVER_URL") or DEFAULT_URL).strip().rstrip("/")
        key = (api_key or os.environ.get("PALAVER_API_KEY") or "").strip() or None
        try:
            urlsplit(url)  # finds brackets that do not match, which httpx lets through
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, ValueError):
            parsed = httpx.URL()
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ConfigurationError(f"{url!r} is no URL of an API; {DEFAULT_URL} would be one")
        if key is not None and not (key.isascii() and key.isprintable()):
            raise ConfigurationError("the API key has characters that no key has")
        return cls(url, key)

    @property
    def client_options(self) -> dict[str, Any]:
        """Arguments for httpx's clients. Redirects are not followed: they would carry the key away.

        Raises:
            ConfigurationError: the environment has a proxy or certificates for this address that cannot be used.
        """
        headers = {"User-Agent": "palaver", "Accept": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        url = httpx.URL(self.url)
        proxy = proxy_for(url)
        return {
            "base_url": url,
            "headers": headers,
            "proxy": proxy,
            "verify": authorities_for(url, proxy),
            "trust_env": False,
            "follow_redirects": False,
        }
