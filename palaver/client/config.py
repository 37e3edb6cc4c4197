"""The address and the key of the API: arguments first, then the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from palaver.errors import ConfigurationError

DEFAULT_URL: Final = "http://127.0.0.1:8080"
_DIRECT: Final = {f"all://{host}": None for host in ("127.0.0.1", "localhost", "[::1]")}
"""No proxy of the environment is asked for this machine."""


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
        """Arguments for httpx's clients. Redirects are not followed: they would carry the key away."""
        headers = {"User-Agent": "palaver", "Accept": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return {"base_url": self.url, "headers": headers, "mounts": dict(_DIRECT), "follow_redirects": False}
