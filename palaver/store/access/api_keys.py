"""The keys of the API that the store keeps.

A process that remembers a record reads the version again and again (ADR 0019): it is another one after each change, so
that a key which was revoked opens nothing any more within a second.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, Final

import orjson

from palaver.errors import Refused, StateConflict
from palaver.late import dataclass
from palaver.schemas.api_keys import KeyInfo, KeyRequest, MadeKey
from palaver.secrets.api_keys import KeyParts, is_key_id, new_api_key
from palaver.store.redis import access_keys
from palaver.store.redis.connection import Connection
from palaver.store.scripting.contracts.replies import RefusalCode
from palaver.store.scripting.refusals import refusal
from palaver.store.scripting.scripts import Command, Scripts
from palaver.store.tenants.tenants import is_erased
from palaver.vocabulary.limits import count_exceeded, limit_of
from palaver.vocabulary.scopes import SCOPES, Scope

_SHOWN: Final = 30 * 86_400
"""Seconds for which a key is listed that has expired."""
_USED: Final = 400 * 86_400
"""Seconds for which the last use of a key is known."""
_MOST: Final = limit_of("api_keys")


@dataclass(frozen=True, slots=True)
class KeyGrant:
    """The rights of a key."""

    name: str
    tenant: str = ""
    """The tag of its tenant; empty for the default one."""
    tenant_name: str | None = None
    """The tenant's name; None for the default one."""
    scopes: frozenset[Scope] = frozenset()
    agents: frozenset[str] | None = None
    """Agents of the server that it may run; None: any."""
    conversation: str | None = None
    """The one conversation that it is for; None: any."""
    operator: bool = False
    """True if it sees all tenants."""
    life: int | None = None
    """Seconds from its creation until it expires; None: it does not."""

    @classmethod
    def of(cls, request: KeyRequest, tenant: str, tenant_name: str | None) -> KeyGrant:
        """The rights that a request asks for, of this tenant; with all scopes if it names none."""
        return cls(
            name=request.name,
            tenant=tenant,
            tenant_name=tenant_name,
            scopes=frozenset(request.scopes or SCOPES),
            agents=None if request.agents is None else frozenset(request.agents),
            conversation=request.conversation,
            operator=request.operator,
            life=request.expires_in,
        )


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as it is stored."""

    id: str
    digest: str
    """SHA-256 of its secret, in hex."""
    grant: KeyGrant
    created_at: int
    """Unix time in seconds, by Redis's clock, as the next."""
    created_by: str | None
    """The name of the key that made it; None if that was done beside the store."""
    expires_at: int | None

    def shown(self, used: int | None = None) -> KeyInfo:
        """Return what may be shown of it; ``used`` is the Unix time of the minute in which it was last used."""
        return KeyInfo(**self._shown(used))

    def _shown(self, used: int | None) -> dict[str, Any]:
        grant = self.grant
        return {
            "id": self.id,
            "name": grant.name,
            "tenant": grant.tenant_name,
            "scopes": tuple(scope for scope in SCOPES if scope in grant.scopes),
            "agents": None if grant.agents is None else tuple(sorted(grant.agents)),
            "conversation": grant.conversation,
            "operator": grant.operator,
            "created_at": _moment(self.created_at),
            "created_by": self.created_by,
            "expires_at": _moment(self.expires_at),
            "last_used_at": _moment(used),
        }

    def to_json(self) -> bytes:
        """The text that is stored."""
        grant = self.grant
        listed = {
            "scopes": sorted(grant.scopes),
            "agents": None if grant.agents is None else sorted(grant.agents),
        }
        fields = {name: getattr(grant, name) for name in _GRANT_FIELDS} | listed
        return orjson.dumps(fields | {name: getattr(self, name) for name in _OWN_FIELDS})

    @classmethod
    def of_json(cls, text: bytes) -> KeyRecord:
        """The record that a text says."""
        fields: dict[str, Any] = orjson.loads(text)
        own = {name: fields.pop(name) for name in _OWN_FIELDS}
        agents = fields.pop("agents")
        grant = KeyGrant(
            scopes=frozenset(fields.pop("scopes")), agents=None if agents is None else frozenset(agents), **fields
        )
        return cls(grant=grant, **own)


_GRANT_FIELDS: Final = ("name", "tenant", "tenant_name", "conversation", "operator", "life")
_OWN_FIELDS: Final = ("id", "digest", "created_at", "created_by", "expires_at")


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made."""

    key: str
    """All of it. It cannot be read again."""
    record: KeyRecord

    def shown(self) -> MadeKey:
        """Return all of it, to be shown once."""
        return MadeKey(key=self.key, **self.record._shown(None))


@dataclass(frozen=True, slots=True)
class KeysNow:
    """Some records at one moment."""

    version: bytes
    at: float
    """Unix time of that moment, by Redis's clock."""
    records: Mapping[str, KeyRecord]
    """By id; of those that are there, expired ones among them."""
    signing: Mapping[bytes, bytes]
    """The keys that tokens are signed with, sealed."""


class ApiKeys:
    """The keys of all tenants, each written and read by itself."""

    def __init__(self, redis: Connection, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    async def create(self, grant: KeyGrant, *, by: str | None = None) -> NewKey:
        """Make a key.

        Raises:
            StateConflict: ``keys_full``; ``tenant_erased``.
            NotDurable: it may be lost again.
        """
        now = await self._room(grant.tenant)
        made = _made(grant, now, by)
        await self._scripts.write_durably([*_stored(made.record), changed()])
        return made

    async def rotate(self, key_id: str, *, overlap: int, by: str | None = None) -> NewKey:
        """Make a key with the same rights. The old one expires after ``overlap`` seconds, or before, as it would have.

        Raises:
            Refused: ``key_not_found``.
            StateConflict: ``keys_full``; ``tenant_erased``.
            NotDurable: the new one may be lost again, or the old one be back.
        """
        old = await self.get(key_id)
        now = await self._room(old.grant.tenant)
        made = _made(old.grant, now, by)
        ends = now + overlap if old.expires_at is None else min(old.expires_at, now + overlap)
        ending = _removed(old) if overlap == 0 else [_record(replace(old, expires_at=ends))]
        await self._scripts.write_durably([*_stored(made.record), *ending, changed()])
        return made

    async def revoke(self, key_id: str) -> KeyRecord:
        """Forget a key; return what it was.

        Raises:
            Refused: ``key_not_found``.
            NotDurable: it may be back.
        """
        record = await self.get(key_id)
        await self._scripts.write_durably([*_removed(record), changed()])
        return record

    async def get(self, key_id: str) -> KeyRecord:
        """Return the record of a key. Raises Refused (``key_not_found``)."""
        text = await self._redis.get(access_keys.api_key(key_id)) if is_key_id(key_id) else None
        if text is None:
            raise Refused("key_not_found")
        return KeyRecord.of_json(text)

    async def version(self) -> bytes:
        """Return what is another text after each change."""
        return await self._redis.get(access_keys.API_KEYS_VERSION) or b""

    async def look(self, key_ids: Collection[str]) -> KeysNow:
        """Return the records of some keys, not older than the version that comes with them."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.get(access_keys.API_KEYS_VERSION)
        pipeline.time()
        pipeline.hgetall(access_keys.SIGNING_KEYS)
        for key_id in key_ids:
            pipeline.get(access_keys.api_key(key_id))
        version, (seconds, micros), signing, *texts = await pipeline.execute()
        records = [KeyRecord.of_json(text) for text in texts if text is not None]
        return KeysNow(version or b"", seconds + micros / 1e6, {record.id: record for record in records}, signing)

    async def list(self, tenant: str = "") -> Sequence[tuple[KeyRecord, int | None]]:
        """Return the keys of a tenant, the newest first, each with the Unix time of the minute in which it was last
        used, if it was."""
        ids = await self._ids(tenant)
        if not ids:
            return []
        known = (await self.look(ids)).records
        pipeline = self._redis.pipeline(transaction=False)
        for key_id in ids:
            pipeline.get(access_keys.api_key_used(key_id))
        used = await pipeline.execute()
        if gone := [key_id for key_id in ids if key_id not in known]:
            await self._scripts.write_durably(_unlisted(tenant, gone))
        return [
            (known[key_id], None if minute is None else int(minute) * 60)
            for key_id, minute in zip(ids, used, strict=True)
            if key_id in known
        ]

    async def granted(self, tenant: str) -> Sequence[KeyRecord]:
        """Return the keys of a tenant, the newest first, to a process that may read nothing else of what opens the
        API."""
        ids = await self._ids(tenant)
        pipeline = self._redis.pipeline(transaction=False)
        for key_id in ids:
            pipeline.get(access_keys.api_key(key_id))
        texts = await pipeline.execute() if ids else ()
        return [KeyRecord.of_json(text) for text in texts if text is not None]

    async def _ids(self, tenant: str) -> Sequence[str]:
        """The ids of a tenant's keys, the newest first."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.zrange(access_keys.api_keys(tenant), 0, -1)
        (members,) = await pipeline.execute()
        return [member.decode() for member in reversed(members)]

    async def note_use(self, minutes: Mapping[str, int]) -> None:
        """Write in which minute each key was last used, by its id."""
        pipeline = self._redis.pipeline(transaction=False)
        for key_id, minute in minutes.items():
            pipeline.set(access_keys.api_key_used(key_id), minute, ex=_USED)
        await pipeline.execute()

    async def _room(self, tenant: str) -> int:
        """See that the tenant may have one more. Return the time."""
        if await is_erased(self._redis, tenant):
            raise refusal(RefusalCode.TENANT_ERASED, None)
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.time()
        pipeline.zcard(access_keys.api_keys(tenant))
        (seconds, _), count = await pipeline.execute()
        # Those that have gone by themselves are still counted until they are looked at.
        if count >= _MOST and len(await self.list(tenant)) >= _MOST:
            count_exceeded("api_keys")
            raise StateConflict("keys_full", None, f"the tenant has {_MOST} keys: revoke some")
        return int(seconds)


def _moment(at: int | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)


def _made(grant: KeyGrant, now: int, by: str | None) -> NewKey:
    key = new_api_key()
    parts = KeyParts.of(key)
    assert parts is not None
    expires_at = None if grant.life is None else now + grant.life
    return NewKey(key, KeyRecord(parts.id, parts.digest, grant, now, by, expires_at))


def _record(record: KeyRecord) -> Command:
    until = () if record.expires_at is None else ("EXAT", record.expires_at + _SHOWN)
    return ("SET", access_keys.api_key(record.id), record.to_json(), *until)


def _stored(record: KeyRecord) -> Sequence[Command]:
    return _record(record), ("ZADD", access_keys.api_keys(record.grant.tenant), record.created_at, record.id)


def _removed(record: KeyRecord) -> Sequence[Command]:
    return ("DEL", access_keys.api_key(record.id)), *_unlisted(record.grant.tenant, [record.id])


def _unlisted(tenant: str, key_ids: Sequence[str]) -> Sequence[Command]:
    used = (access_keys.api_key_used(key_id) for key_id in key_ids)
    return ("ZREM", access_keys.api_keys(tenant), *key_ids), ("UNLINK", *used)


def changed() -> Command:
    """The command that comes last: a reader that sees the new version sees all that was written before it."""
    return ("SET", access_keys.API_KEYS_VERSION, token_hex(8))
