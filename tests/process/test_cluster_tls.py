"""A cluster behind NAT and TLS: its servers know each other by addresses at which nobody speaks TLS, and are reached at
others."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from features.stack.ports import HOST
from palaver.config.settings import Settings
from palaver.store.redis.cluster.client import ClusterClient
from palaver.store.server.preflight import Preflight
from palaver.vocabulary.ids import all_shards
from tests.chaos.faulty_proxy import FaultyProxy
from tests.process.test_tls import certificate
from tests.redis_cluster import WAITS, RedisCluster

__all__ = ["certificate"]
pytestmark = [pytest.mark.process, pytest.mark.long]
NAMES = [f"{{p{shard}}}:x" for shard in all_shards(64)]


@pytest.fixture(scope="module")
def address(certificate: Path) -> Iterator[str]:
    """Its address but for the authority to trust."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with RedisCluster() as cluster, ExitStack() as stack:
        reached = [stack.enter_context(FaultyProxy(server.port, tls=tls).open()).port for server in cluster.servers]
        pairs = zip(cluster.servers, reached, strict=True)
        remap = ",".join(f"{HOST}:{server.port}={HOST}:{port}" for server, port in pairs)
        yield f"rediss+cluster://{HOST}:{reached[0]}/0?address_remap={remap}"


async def test_each_master_is_reached_where_the_address_says(address: str, certificate: Path) -> None:
    client = ClusterClient.of(f"{address}&ssl_ca_certs={certificate}", **WAITS)
    try:
        pipeline = client.pipeline(transaction=False)
        for name in NAMES:
            pipeline.set(name, 1)
        assert await pipeline.execute() == [True] * len(NAMES)
        channels = client.channels()
        await channels.subscribe(*NAMES)
        for _ in NAMES:
            message = await channels.get_message(timeout=5)
            assert message is not None
            assert message["type"] == "subscribe"
        await channels.aclose()
    finally:
        await client.aclose()


def test_each_master_is_looked_at_there(address: str, certificate: Path) -> None:
    looked = _look(f"{address}&ssl_ca_certs={certificate}")
    assert {check for check, level in looked.items() if level != "ok"} == {"masters"}, "they have no replicas"


def test_a_certificate_that_nobody_vouches_for_is_no_answer(address: str) -> None:
    assert _look(address) == {"answer": "error"}


def test_without_a_remap_masters_that_cannot_be_reached_are_named(address: str, certificate: Path) -> None:
    unmapped = address.partition("?")[0]
    looked = Preflight(_settings(f"{unmapped}?ssl_ca_certs={certificate}"), "worker").look()
    (away,) = [each for each in looked if each.check == "away"]
    assert away.found == "3 of 3 masters do not answer"
    assert "?address_remap=KNOWN:PORT=REACHED:PORT" in away.advice


def _settings(url: str) -> Settings:
    return Settings(redis_url=url, broker_url="amqp://127.0.0.1:1")


def _look(url: str) -> dict[str, str]:
    return {each.check: each.level for each in Preflight(_settings(url), "worker").look()}
