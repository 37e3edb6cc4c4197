"""The registry of tenants: their names, for people, and their tags, which ids carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, assert_never

import orjson

from palaver.errors import Refused, StateConflict
from palaver.store.redis import access_keys
from palaver.store.redis.connection import Connection
from palaver.store.redis.reach import NOBODY
from palaver.store.scripting.contracts.tenants import Added, CreateTenant, NameTaken, TagTaken, TooManyTenants
from palaver.store.scripting.scripts import Scripts
from palaver.vocabulary.ids import TENANT_NAME, new_tag
from palaver.vocabulary.limits import count_exceeded, limit_of

NO_TENANT: Final = "There is no tenant of that name."


class Tenant(NamedTuple):
    """A tenant."""

    name: str
    tag: str
    """Six characters that its ids carry; empty for the default tenant."""
    erasing: bool = False
    """True while all that it has is being erased. Only a list of tenants says so."""


DEFAULT: Final = Tenant("default", "")
"""The tenant for callers that need no other: it is always there, and its ids carry nothing."""


class Tenants:
    """The tenants of an installation."""

    def __init__(self, redis: Connection, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    async def create(self, name: str) -> Tenant:
        """A new tenant. Nothing renames one, and no other one ever gets its tag: it is in ids that others may keep.

        Raises:
            Refused: ``invalid_name``, it is none; ``too_many_tenants``, there are as many as there may be.
            StateConflict: ``tenant_exists``.
        """
        if not TENANT_NAME.fullmatch(name):
            raise Refused("invalid_name", "a tenant's name is 1 to 63 of a-z, 0-9 and -, and does not begin with -")
        if name == DEFAULT.name:
            raise _exists(name)
        while True:
            tag = new_tag()
            if tag == NOBODY:
                continue
            create = CreateTenant(tenants=access_keys.TENANTS, tenant=name, tag=tag, record=orjson.dumps({"tag": tag}))
            match await self._scripts.run(create):
                case Added():
                    return Tenant(name, tag)
                case NameTaken():
                    raise _exists(name)
                case TagTaken():
                    continue
                case TooManyTenants():
                    count_exceeded("tenants")
                    raise Refused("too_many_tenants", f"there are {limit_of('tenants')} tenants, and may be no more")
                case other:
                    assert_never(other)

    async def get(self, name: str) -> Tenant | None:
        """The tenant of this name, if there is one that is not being erased."""
        if name == DEFAULT.name:
            return DEFAULT
        if not TENANT_NAME.fullmatch(name):
            return None
        record, erasing = await self._redis.hmget(access_keys.TENANTS, [name, f"-{name}"])
        return None if record is None or erasing is not None else Tenant(name, orjson.loads(record)["tag"])

    async def by_tag(self, tag: str) -> Tenant | None:
        """The tenant whose ids carry this tag, if there is one; also while it is being erased."""
        if not tag:
            return DEFAULT
        name = await self._redis.hget(access_keys.TENANTS, f"@{tag}")
        return Tenant(name.decode(), tag) if name else None

    async def list(self) -> Sequence[Tenant]:
        """All tenants by name, the default one first."""
        records = await self._redis.hgetall(access_keys.TENANTS)
        named = sorted((name.decode(), record) for name, record in records.items() if name[:1] not in b"@-")
        return [
            DEFAULT,
            *(Tenant(name, orjson.loads(record)["tag"], f"-{name}".encode() in records) for name, record in named),
        ]


async def is_erased(redis: Connection, tag: str) -> bool:
    """Tell whether the tenant of this tag is erased, or is being. The default tenant never is, so nothing is asked."""
    name = await redis.hget(access_keys.TENANTS, f"@{tag}") if tag else None
    return name is not None and (not name or await redis.hget(access_keys.TENANTS, f"-{name.decode()}") is not None)


def _exists(name: str) -> StateConflict:
    return StateConflict("tenant_exists", None, f"there is a tenant {name} already")
