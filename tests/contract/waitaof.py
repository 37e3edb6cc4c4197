"""Servers that can wait for their disk, and those that cannot."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis


async def knows_waitaof(redis: Redis) -> bool:
    """Whether a server has the command."""
    return b"waitaof" in await redis.command_list()


async def need_waitaof(redis: Redis) -> None:
    """Skip the test if it has not."""
    if not await knows_waitaof(redis):
        pytest.skip("PALAVER_DURABILITY=fsync is not tested: this server is older than Redis 7.2 and has no WAITAOF")
