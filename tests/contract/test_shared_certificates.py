"""Connections over TLS share what they know of certificates: to read all authorities takes 40 ms of a processor."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError

from features.stack.ports import HOST
from palaver.config.sentinels import sentinels_of
from palaver.store.redis.pools import pool_of
from palaver.store.redis.sentinel import blocking
from tests.sentinels import SERVICE


@pytest.mark.parametrize("address", [f"rediss+sentinel://{HOST}/{SERVICE}", f"rediss://{HOST}/0"])
def test_connections_share_what_they_know_of_certificates(address: str) -> None:
    """Each that read all authorities itself would stop the loop for as long as Sentinels have to answer."""
    pools: list[Any] = [pool_of(f"{address}{options}", patience=5) for options in ("", "?ssl_cert_reqs=none")]
    first, second, careless = (pool.make_connection() for pool in (pools[0], *pools))
    assert first.ssl_context is second.ssl_context
    assert (first.ssl_context.check_hostname, careless.ssl_context.check_hostname) == (True, False)


async def test_a_thread_that_finds_no_primary_reads_no_authorities_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks each Sentinel on a connection of its own, again and again until there is one."""
    asked, read, plain = 0, 0, ssl.create_default_context

    def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        writer.close()

    def reading() -> ssl.SSLContext:
        nonlocal read
        read += 1
        return plain()

    monkeypatch.setattr(ssl, "create_default_context", reading)
    async with await asyncio.start_server(close, HOST) as server:
        port = server.sockets[0].getsockname()[1]
        for _ in range(5):
            with pytest.raises(ConnectionError, match="no Sentinel knows the primary"):
                await asyncio.to_thread(_ping, f"rediss+sentinel://{HOST}:{port}/{SERVICE}")
    assert asked >= 5
    # They are read again each minute.
    assert read <= 2


def _ping(url: str) -> None:
    with Redis.from_pool(blocking.pool(sentinels_of(url))) as client:
        client.ping()
