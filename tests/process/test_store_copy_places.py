"""A store is copied between servers, Sentinels and clusters, with TLS and without, and a failover meanwhile is told."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from features.stack.ports import HOST
from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from tests.chaos.faulty_proxy import FaultyProxy
from tests.pages import ROOT
from tests.process.test_tls import certificate
from tests.redis_cluster import RedisCluster
from tests.sentinels import SERVICE, SentinelGroup
from tests.store_copies import command, connected, copy, everything, fill
from tests.tls import tls_of
from tests.waiting import PATIENCE, eventually

__all__ = ["certificate"]
pytestmark = [pytest.mark.process, pytest.mark.long]
SHARDS = 16


@pytest.fixture(scope="module")
def masters() -> Iterator[RedisCluster]:
    with RedisCluster() as masters:
        yield masters


@pytest.fixture(autouse=True)
def empty(masters: RedisCluster) -> None:
    with closing(masters.whole()) as client:
        client.flushall()


@pytest.fixture
def one() -> Iterator[RedisServer]:
    """A server with a store."""
    with RedisServer() as server:
        asyncio.run(fill(Settings(redis_url=server.url, shards=SHARDS), 30, 20))
        yield server


@pytest.fixture(scope="module")
def group() -> Iterator[SentinelGroup]:
    """With logins of both, as an installation has them."""
    with SentinelGroup(replicas=1, guarded=True).open() as group:
        yield group


@pytest.fixture
def encrypted(certificate: Path) -> Iterator[Callable[[int], int]]:
    """Give the port at which a server is reached by TLS alone."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with ExitStack() as stack:
        yield lambda port: stack.enter_context(FaultyProxy(port, tls=tls).open()).port


def test_through_sentinels(one: RedisServer, group: SentinelGroup, masters: RedisCluster) -> None:
    another = group.url.replace("/0?", "/1?")
    for source, target in ((one.url, group.url), (group.url, masters.url), (masters.url, another)):
        copied = copy(source, target)
        assert copied.status == 0, copied
        assert copied.receipt["written"] > 0
        assert copied.receipt["notes"] == []
    there = everything(one.url)
    assert there == everything(group.primary.url) == everything(masters.url)
    assert there == everything(group.primary.url.replace("/0", "/1"))
    assert "are the same" in copy(group.url, group.primary.url).said


def test_by_tls(one: RedisServer, masters: RedisCluster, certificate: Path, encrypted: Callable[[int], int]) -> None:
    here = f"rediss://{HOST}:{encrypted(one.port)}/0"
    reached = [(server.port, encrypted(server.port)) for server in masters.servers]
    remap = ",".join(f"{HOST}:{known}={HOST}:{port}" for known, port in reached)
    there = f"rediss+cluster://{HOST}:{reached[0][1]}/0?address_remap={remap}"
    copied = copy(f"{here}?ssl_ca_certs={certificate}", f"{there}&ssl_ca_certs={certificate}")
    assert copied.status == 0, copied
    assert everything(one.url) == everything(masters.url)
    refused = copy(here, f"{there}&ssl_ca_certs={certificate}")
    assert refused.status == 69
    assert "the source does not answer" in refused.said
    assert "CERTIFICATE_VERIFY_FAILED" in refused.said


def test_by_tls_and_sentinels(one: RedisServer, certificate: Path, encrypted: Callable[[int], int]) -> None:
    here = f"rediss://{HOST}:{encrypted(one.port)}/0?ssl_ca_certs={certificate}"
    with SentinelGroup(replicas=0, sentinels=1, guarded=True, tls=tls_of(certificate)).open() as group:
        for source, target in ((here, group.url), (group.url, here)):
            copied = copy(source, target)
            assert copied.status == 0, copied
        assert everything(one.url) == everything(group.primary.url)


@pytest.mark.parametrize("role", ["source", "target"])
def test_a_failover_meanwhile_makes_the_copy_none(
    role: str, one: RedisServer, group: SentinelGroup, masters: RedisCluster
) -> None:
    """A replica may not have all that was written, and a page of its names does not go on where another's ended."""
    with group.admin(group.primary) as client:
        client.flushall()
    group.settle()
    if role == "source":
        assert copy(one.url, group.url).status == 0
    with RedisServer() as empty:
        # Whoever is not failed over stands still meanwhile, so that nothing is on its way to who is.
        source, still, target = (group.url, empty, empty.url) if role == "source" else (one.url, one, group.url)
        written = empty.url if role == "source" else group.primary.url
        words, environment = command(source, target)
        with subprocess.Popen(words, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True) as copying:
            with closing(connected(written)) as client:
                eventually(lambda: client.dbsize() > 100, every=0.001)
            still.pause()
            try:
                group.fail_over()
            finally:
                still.resume()
            _, said = copying.communicate(timeout=PATIENCE)
        took_over = f"another server took over at the {role}, or one was restarted: begin again"
        # Sentinels that are late with the new one.
        away = f"the {role} does not answer"
        assert {1: took_over, 69: away}[copying.returncode] in said, said
        group.settle()
        copied = copy(source, target)
        assert copied.status == 0, copied
        there = everything(empty.url) if role == "source" else everything(group.primary.url)
        assert there == everything(one.url)


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        (f"/{SERVICE}/", "/others/", "knows no service others"),
        ("PASSWORD-2", "s3cret-9", "refuses the login: sentinel_username and sentinel_password are its user"),
    ],
)
def test_a_wrong_address_of_sentinels_is_told(
    right: str, wrong: str, told: str, one: RedisServer, group: SentinelGroup
) -> None:
    refused = copy(one.url, group.url.replace(right, wrong))
    assert refused.status == 69
    assert told in refused.said
    assert "s3cret" not in refused.said
