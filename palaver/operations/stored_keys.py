"""The keys of the API that the store keeps, remembered for a moment by this process.

A record is used as long as the version of all records was read within the last second and is the same (ADR 0019). Where
such keys are not used, nothing is read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import Context
from typing import Final

from palaver.operations.backend import within_deadline
from palaver.operations.live_keys import LiveKey, LiveToken, bearer_of, is_away, while_valid
from palaver.processes.tasks import end
from palaver.secrets.api_keys import KeyParts
from palaver.secrets.tokens import signed_with, verified
from palaver.store.access.api_keys import ApiKeys, KeyRecord
from palaver.store.access.signing_keys import SigningKey, SigningKeys
from palaver.store.redis.single_flight import SingleFlight
from palaver.vocabulary.limits import count_exceeded, limit_of

_log: Final = logging.getLogger("palaver.api")
EVERY: Final = 0.4
"""Seconds between two looks at the version."""
TRUSTED: Final = 0.9
"""Seconds since the beginning of the last look for which records are used without another one."""
_UNUSED: Final = 60.0
"""Seconds after which a record that is not used is forgotten."""
_READS: Final = 16
"""Lookups under way at once: a client that makes keys up has the server look for them."""
_MOST: Final = limit_of("api_keys_known")
_MINUTE: Final = 60
_SIGNING: Final = "signing keys"
_UNKNOWN: Final = b"unknown"
"""No version is like this."""


class StoredKeys:
    """The keys that this process has met lately."""

    def __init__(self, keys: ApiKeys, signing: SigningKeys) -> None:
        self._keys = keys
        self._signing_keys = signing
        self._signing: Mapping[str, SigningKey] = {}
        self._reads = SingleFlight(_READS)
        self._known: OrderedDict[str, LiveKey] = OrderedDict()
        """By id; the first has not been used for longest."""
        self._version = _UNKNOWN
        self._looked_at = float("-inf")
        """The time at which the last look began that was answered."""
        self._clock = 0.0
        """Redis's time, less the monotonic one."""
        self._used: dict[str, int] = {}
        """Minutes of use that are to be written, by id."""
        self._watching: asyncio.Task[None] | None = None

    async def open(self, key: bytes) -> LiveKey | None:
        """Return the key that this is; None if it is none, or not valid.

        Raises what Redis raises, and StoreUnavailable: that is not known.
        """
        parts = KeyParts.of(key.decode("ascii", "replace"))
        if parts is None:
            return None
        live = await self._known_now(parts.id)
        if live is None or not parts.opens(live.record.digest) or not live.valid:
            return None
        self._note(live)
        return live

    async def open_token(self, token: bytes) -> LiveToken | None:
        """Return the token that this is; None if it is none, or not valid. Raises as `open`."""
        text = token.decode("ascii", "replace")
        key_id = signed_with(text)
        if key_id is None:
            return None
        if key_id not in self._signing or not self._fresh:
            await within_deadline(self._reads.read(_SIGNING, lambda: self._look([])))
        signing = self._signing.get(key_id)
        claims = None if signing is None else verified(text, signing.secret)
        if claims is None or claims["exp"] <= time.monotonic() + self._clock:
            return None
        parent = None
        if "key" in claims:
            parent = await self._known_now(claims["key"])
            if parent is None or not parent.valid:
                return None
            self._note(parent)
        return LiveToken(bearer_of(claims, parent), claims["exp"] - self._clock, parent)

    @property
    def _fresh(self) -> bool:
        return time.monotonic() - self._looked_at <= TRUSTED

    async def _known_now(self, key_id: str) -> LiveKey | None:
        live = self._known.get(key_id)
        if live is None or not self._fresh:
            live = await within_deadline(self._reads.read(key_id, lambda: self._look_up(key_id)))
        return live

    @contextmanager
    def held(self, live: LiveKey | LiveToken) -> Iterator[None]:
        """Serve the bearer of what was just opened: what takes long ends with it."""
        if isinstance(live, LiveKey):
            with self._held(live), while_valid(live.ended, live.record.id):
                yield
            return
        timer = asyncio.get_running_loop().call_later(live.ends_at - time.monotonic(), live.ended.set)
        try:
            held = self._held(live.parent, live.ended) if live.parent else nullcontext()
            with held, while_valid(live.ended, ends_at=live.ends_at):
                yield
        finally:
            timer.cancel()

    @contextmanager
    def _held(self, live: LiveKey, token: asyncio.Event | None = None) -> Iterator[None]:
        if live.record.id not in self._known:
            # It was forgotten for a change since it was read, which may have been one of this key.
            self._known[live.record.id], self._version = live, _UNKNOWN
        live = self._known[live.record.id]
        self._see_that_somebody_watches()
        live.holders += 1
        if token is not None:
            live.tokens.add(token)
        try:
            yield
        finally:
            live.holders -= 1
            if token is not None:
                live.tokens.discard(token)

    async def close(self) -> None:
        """Look no more, and write what is known of uses."""
        if self._watching is not None:
            await end(self._watching)
        await self._reads.close()
        await self._quietly_write()

    def _note(self, live: LiveKey) -> None:
        live.used_at = time.monotonic()
        self._known.move_to_end(live.record.id)
        minute = int(live.used_at + self._clock) // _MINUTE
        if minute != live.noted:
            live.noted = self._used[live.record.id] = minute

    async def _look_up(self, key_id: str) -> LiveKey | None:
        await self._look([key_id])
        self._see_that_somebody_watches()
        return self._known.get(key_id)

    def _see_that_somebody_watches(self) -> None:
        if self._watching is None and self._known:
            # Not in the context of this request: it lives longer.
            self._watching = asyncio.create_task(self._watch(), name="palaver-keys", context=Context())

    async def _look(self, asked: list[str]) -> None:
        """Read some keys and the version. If that is another one, whatever is held is read, too, and the rest is
        forgotten."""
        began = time.monotonic()
        now = await self._keys.look(asked)
        if now.version != self._version:
            held = {key_id for key_id, live in self._known.items() if live.holders}
            if held:
                began = time.monotonic()
                now = await self._keys.look(held.union(asked))
            for key_id in self._known.keys() - held:
                del self._known[key_id]
            asked = [*held.union(asked)]
        if now.version != self._version:
            self._signing = self._signing_keys.opened(now.signing)
        self._version, self._looked_at, self._clock = now.version, began, now.at - began
        for key_id in asked:
            if key_id in now.records:
                self._remember(now.records[key_id])
            elif key_id in self._known:
                self._known.pop(key_id).end()

    def _remember(self, record: KeyRecord) -> None:
        ends_at = float("inf") if record.expires_at is None else record.expires_at - self._clock
        live = self._known.get(record.id)
        if live is None:
            self._known[record.id] = LiveKey(record, ends_at)
        else:
            live.record, live.ends_at = record, ends_at
        if len(self._known) > _MOST:
            count_exceeded("api_keys_known")
            spare = (key_id for key_id, live in self._known.items() if not live.holders and key_id != record.id)
            self._known.pop(next(spare, ""), None)

    async def _watch(self) -> None:
        """Look at the version again and again, as long as a key is remembered."""
        try:
            while self._known:
                await asyncio.sleep(EVERY)
                try:
                    await within_deadline(self._look_again())
                except Exception as error:
                    if not is_away(error):
                        _log.exception("the keys of the store cannot be looked at")
                self._let_go()
        finally:
            self._watching = None

    async def _look_again(self) -> None:
        began = time.monotonic()
        if await self._keys.version() == self._version:
            self._looked_at = began
        else:
            await self._look([])
        await self._write()

    async def _write(self) -> None:
        if self._used:
            used, self._used = self._used, {}
            await self._keys.note_use(used)

    async def _quietly_write(self) -> None:
        try:
            await within_deadline(self._write())
        except Exception as error:
            _log.info("the last uses of keys are not written: %s", type(error).__name__)

    def _let_go(self) -> None:
        """End what has expired, and forget what is not used."""
        now = time.monotonic()
        for key_id, live in [*self._known.items()]:
            if live.ends_at <= now:
                live.end()
            if live.ended.is_set() or (not live.holders and now - live.used_at > _UNUSED):
                del self._known[key_id]
