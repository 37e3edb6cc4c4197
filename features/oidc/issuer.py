"""An issuer of OpenID Connect: its keys, fetched when they are needed, and remembered (ADR 0019)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextvars import Context
from typing import Any, Final
from urllib.parse import urlsplit

from palaver.config.settings import Settings
from palaver.processes.tasks import end
from palaver.vocabulary.addresses import host_and_port, is_loopback

from .documents import Documents, Resolve, Unfetched, resolved
from .key_set import KeySet, key_id_of

_log: Final = logging.getLogger("palaver.issuer")
_METADATA: Final = "/.well-known/openid-configuration"
_DEADLINE: Final = 5.0
"""Seconds for its metadata and its keys together."""
_PATIENCE: Final = 2.0
"""Seconds that a request waits for them: its client hears 503 within three."""
FRESH: Final = 300.0
"""Seconds for which keys are used without asking again."""
COOL_DOWN: Final = 30.0
"""Seconds from one fetch to the next, whatever is asked for."""
AGAIN: Final = 5.0
"""The same as long as there are no keys at all."""
SERVES: Final = 6 * 3600.0
"""Seconds for which keys serve while the issuer is away."""


class Issuer:
    """The issuer that the settings name."""

    def __init__(self, url: str, jwks_url: str | None, documents: Documents) -> None:
        self.url = url
        self._jwks_url = jwks_url
        self._documents = documents
        self._keys: KeySet | None = None
        self._keys_at = float("-inf")
        """The time at which the fetch of these keys began."""
        self._next_at = float("-inf")
        """The time from which on they may be fetched again."""
        self._failure = ""
        """The reason why the last fetch failed; empty if it did not."""
        self._fetching: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, settings: Settings, resolve: Resolve = resolved) -> Issuer:
        """Return the issuer of these settings, which have one. Nothing is asked yet."""
        assert settings.oidc_issuer is not None
        hosts = [host_and_port(url)[0] for url in (settings.oidc_issuer, settings.oidc_jwks_url) if url]
        private = {*settings.oidc_private_hosts, *filter(is_loopback, hosts)}
        return cls(settings.oidc_issuer, settings.oidc_jwks_url, Documents(private, resolve))

    async def claims(self, token: str) -> Mapping[str, Any] | None:
        """Return the claims of a token that the issuer signed; None if it has not.

        Raises:
            Unfetched: that cannot be known, as its keys are not to be had.
        """
        key_id = key_id_of(token)
        if key_id is None:
            return None
        keys = await self._keys_for(key_id)
        return next((claims for key in keys.of_id(key_id) if (claims := key.signed(token)) is not None), None)

    async def fetch(self) -> KeySet:
        """Ask for its keys now, and return them.

        Raises:
            Unfetched: they are not to be had, or its metadata is that of another one.
        """
        try:
            async with asyncio.timeout(_DEADLINE):
                jwks_url = self._jwks_url or await self._discovered()
                return KeySet.of(await self._documents.read(jwks_url))
        except TimeoutError:
            raise Unfetched(f"{self.url} did not answer within {_DEADLINE:g} seconds") from None

    async def close(self) -> None:
        """Fetch no more."""
        if self._fetching is not None:
            await end(self._fetching)

    @property
    def _serving(self) -> KeySet | None:
        """The keys that may be used; None if there are none, or the issuer has been away for too long."""
        return self._keys if time.monotonic() - self._keys_at <= SERVES else None

    async def _keys_for(self, key_id: str) -> KeySet:
        known = self._serving
        if known is None or not known.of_id(key_id):
            return await self._refetched(key_id)
        age = time.monotonic() - self._keys_at
        if age > FRESH:
            fetching = self._begin()
            # No request waits, but for the first after a long silence: the key may be gone since.
            if age > 2 * FRESH and not self._failure:
                await _patiently(fetching)
        return self._serving or known

    async def _refetched(self, key_id: str) -> KeySet:
        """Return keys that were fetched because there is none of this id, now or a moment ago."""
        await _patiently(self._begin())
        known = self._serving
        unanswered = self._failure or ("it has not answered yet" if self._fetching is not None else "")
        # That there is no such key is the issuer's to say.
        if known is None or (unanswered and not known.of_id(key_id)):
            raise Unfetched(unanswered or "it has not been asked for too long")
        return known

    def _begin(self) -> asyncio.Task[None] | None:
        """Return the fetch that is under way, or one that begins now; None if it is too early for one."""
        if self._fetching is None and time.monotonic() >= self._next_at:
            # Not in the context of this request: it lives longer.
            self._fetching = asyncio.create_task(self._fetch(), name="palaver-issuer", context=Context())
        return self._fetching

    async def _fetch(self) -> None:
        began = time.monotonic()
        try:
            self._keys, self._keys_at, self._failure = await self.fetch(), began, ""
        except Exception as error:
            foreseen = isinstance(error, Unfetched)
            self._failure = str(error) if foreseen else type(error).__name__
            _log.warning(
                "the keys of PALAVER_OIDC_ISSUER are not to be had: %s", error, exc_info=None if foreseen else error
            )
        finally:
            self._next_at = time.monotonic() + (AGAIN if self._serving is None else COOL_DOWN)
            self._fetching = None

    async def _discovered(self) -> str:
        """Return the address of its keys, as its metadata has it."""
        metadata = await self._documents.read(self.url.rstrip("/") + _METADATA)
        if metadata.get("issuer") != self.url:
            raise Unfetched(
                f"the metadata at {self.url} is that of another issuer: set PALAVER_OIDC_ISSUER as it has it"
            )
        jwks_url = metadata.get("jwks_uri")
        if not isinstance(jwks_url, str) or not urlsplit(jwks_url).scheme:
            raise Unfetched(f"the metadata of {self.url} has no jwks_uri")
        return jwks_url


async def _patiently(fetching: asyncio.Task[None] | None) -> None:
    """Wait for a fetch. All wait for the same one, and it goes on if they cannot wait any longer."""
    if fetching is not None:
        await asyncio.wait([fetching], timeout=_PATIENCE)
