"""The common part of all requests to a provider, made once: made for each of them, it was a twelfth of the CPU of a
step (ADR 0023)."""

from __future__ import annotations

import httpx

from palaver.config.providers import Provider

from ..protocols import protocol_of


class Destination:
    """The URL of a provider's models, and the headers and timeouts of all requests to it, its key among them.

    It belongs to the provider that it was made of, as that was then.
    """

    def __init__(self, provider: Provider) -> None:
        protocol = protocol_of(provider)
        headers = {
            "content-type": "application/json",
            # A compressed stream would be held back until a block is full.
            "accept-encoding": "identity",
            **protocol.headers(provider.api_key),
        }
        self._url = httpx.URL(f"{provider.base_url.rstrip('/')}{protocol.path}")
        self._headers = tuple((name.encode("ascii"), value.encode("ascii")) for name, value in headers.items())
        self._extensions = {"timeout": httpx.Timeout(None, connect=provider.timeouts.connect).as_dict()}

    def request(self, body: bytes, request_id: str) -> httpx.Request:
        """Make the request of one call."""
        run_id, _, _ = request_id.partition(":")
        return httpx.Request(
            "POST",
            self._url,
            headers=[
                *self._headers,
                (b"x-request-id", request_id.encode("ascii")),
                (b"x-palaver-run", run_id.encode("ascii")),
            ],
            # In place of `content`, with which httpx makes the headers anew, to add what the transport adds as well.
            stream=httpx.ByteStream(body),
            extensions=self._extensions,
        )
