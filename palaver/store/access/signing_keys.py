"""The keys that tokens are signed with, sealed with ``PALAVER_SECRET_KEY``: all processes of the API share them.

A new one is made each day; the one before is valid until it is two days old, so that every token outlives no key.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from typing import Final

import orjson

from palaver.config.settings import Settings
from palaver.late import dataclass
from palaver.secrets.sealing import KeyMissing, SealBroken
from palaver.store.access.api_keys import changed
from palaver.store.redis import access_keys
from palaver.store.redis.connection import Connection
from palaver.store.scripting.scripts import Scripts

_SIGNS: Final = 86_400
"""Seconds for which a key signs."""
_VERIFIES: Final = 2 * _SIGNS
"""Seconds after which it is deleted."""
_PLACE: Final = "signing key"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that this process can open."""

    id: str
    secret: bytes
    created_at: int


class SigningKeys:
    """The keys that tokens are signed and verified with."""

    def __init__(self, redis: Connection, scripts: Scripts, settings: Settings) -> None:
        self._redis = redis
        self._scripts = scripts
        self._sealer = settings.sealer

    def opened(self, stored: Mapping[bytes, bytes]) -> Mapping[str, SigningKey]:
        """Return the stored keys by their ids, but for those that this process cannot open."""
        found = {}
        for key_id, text in stored.items():
            name, fields = key_id.decode(), orjson.loads(text)
            try:
                secret = self._sealer.open(fields["sealed"], _PLACE, name)
            except (KeyMissing, SealBroken):
                continue
            found[name] = SigningKey(name, base64.b64decode(secret), fields["created_at"])
        return found

    async def current(self) -> SigningKey:
        """Return the key to sign with; makes one if the newest is a day old.

        Raises:
            KeyMissing: this process has no key to seal it with.
            NotDurable: it may be lost again.
        """
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.time()
        pipeline.hgetall(access_keys.SIGNING_KEYS)
        (now, _), stored = await pipeline.execute()
        known = self.opened(stored)
        newest = max(known.values(), key=lambda key: (key.created_at, key.id), default=None)
        if newest is not None and now - newest.created_at < _SIGNS:
            return newest
        made = SigningKey(secrets.token_hex(6), secrets.token_bytes(32), now)
        sealed = self._sealer.seal(base64.b64encode(made.secret).decode(), _PLACE, made.id)
        old = [name for name, text in stored.items() if orjson.loads(text)["created_at"] < now - _VERIFIES]
        await self._scripts.write_durably(
            [
                ("HSET", access_keys.SIGNING_KEYS, made.id, orjson.dumps({"sealed": sealed, "created_at": now})),
                ("EXPIRE", access_keys.SIGNING_KEYS, _VERIFIES),
                *([("HDEL", access_keys.SIGNING_KEYS, *old)] if old else ()),
                changed(),
            ]
        )
        return made
