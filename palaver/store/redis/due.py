"""An index of what needs attention at a time: things of all tenants, by name."""

from __future__ import annotations

from palaver.store.redis.connection import Connection, now_ms
from palaver.store.redis.keys import Key


def member(tenant: str, name: str) -> str:
    """The place of a thing in such an index."""
    return f"{tenant}/{name}"


async def read_due(redis: Connection, index: Key, limit: int) -> tuple[list[tuple[str, str]], float | None]:
    """Return the tenants and names of what needs attention now, and the seconds until the next one will; None if none
    will."""
    now = await now_ms(redis)
    pipeline = redis.pipeline(transaction=False)
    pipeline.zrange(index, "-inf", now, byscore=True, offset=0, num=limit)
    pipeline.zrange(index, f"({now}", "+inf", byscore=True, offset=0, num=1, withscores=True)
    members, upcoming = await pipeline.execute()
    places = [each.decode().partition("/") for each in members]
    return [(tenant, name) for tenant, _, name in places], (upcoming[0][1] - now) / 1000 if upcoming else None
