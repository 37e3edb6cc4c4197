"""Redis behind TLS: store, publisher, workers and Flower speak it, trust whom they are told to, say what is wrong."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from flower.utils.broker import Broker
from redis.exceptions import RedisError

from features.stack.errors import StackError
from features.stack.redis_server import RedisServer
from features.stack.stack import Stack
from palaver.steps.leases import Delivery
from palaver.steps.wire import in_redis
from palaver.store.fleet.queue_lists import QueueLists
from tests.chaos.faulty_proxy import FaultyProxy
from tests.process.cluster import Cluster
from workers.broker.transport import broker_settings

pytestmark = pytest.mark.process

DELIVERY = Delivery("model", "run_00" + "1" * 26, "conv_00" + "2" * 26, "1", 1)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for this machine that nobody vouches for; its key lies beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("TLS IS NOT TESTED: there is no openssl on PATH to make a certificate with")
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    what = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    signs_itself = ["-addext", "keyUsage=critical,digitalSignature,keyCertSign", "-days", "2"]
    places = ["-keyout", str(path.with_name("key.pem")), "-out", str(path)]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *what, *signs_itself, *places]
    subprocess.run(make, check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def port(server: RedisServer, certificate: Path) -> Iterator[int]:
    """Where the server speaks TLS, and nothing else."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with FaultyProxy(server.port, tls=tls).open() as proxy:
        yield proxy.port


@pytest.fixture
def url(port: int, certificate: Path) -> str:
    return f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate}"


def test_a_run_with_a_tool_over_tls(url: str, tmp_path: Path) -> None:
    with Cluster(tmp_path, redis_url=url) as cluster:
        run = cluster.ended(cluster.submit("tool-2", tools=["record"]))
        assert (run.status, run.usage.tool_calls) == ("completed", 2)
        told = cluster.new_logs()
        assert not [name for name, text in told.items() if "left to the sweeper" in text or "insecure" in text], told


def published(url: str) -> bool:
    """Whether the publisher trusts who answers there."""

    async def publish() -> bool:
        lists = QueueLists(url)
        try:
            with suppress(RedisError):
                await lists.push({"model": [in_redis(DELIVERY)]})
                return True
            return False
        finally:
            await lists.close()

    return asyncio.run(publish())


def test_flower_reads_the_queues_over_tls(url: str) -> None:
    assert published(url)
    broker = Broker(url, broker_use_ssl=broker_settings(url)["broker_use_ssl"])
    [queue] = asyncio.run(broker.queues(["model"]))
    assert queue["messages"] > 0


def test_a_certificate_that_nobody_vouches_for_is_refused(url: str) -> None:
    unknown, _, _ = url.partition("?")
    assert not published(unknown)
    assert not published(f"{unknown}?ssl_check_hostname=false")
    assert published(f"{unknown}?ssl_cert_reqs=none"), "asked not to look"


@pytest.mark.parametrize(
    ("scheme", "tls", "told"),
    [
        ("redis", True, "ConnectionError: Connection closed by server."),
        ("rediss", False, "TimeoutError: Timeout connecting to server"),
        ("rediss", True, "CERTIFICATE_VERIFY_FAILED"),
    ],
    ids=["plain text to TLS", "TLS to plain text", "unknown certificate"],
)
def test_a_worker_says_why_it_cannot_start(
    scheme: str, tls: bool, told: str, port: int, server: RedisServer, tmp_path: Path
) -> None:
    wrong = f"{scheme}://127.0.0.1:{port if tls else server.port}/0"
    stack = Stack(tmp_path, redis_url=wrong, processes={"api": 0, "tools": 0, "flower": 0})
    with pytest.raises(StackError, match="the lifespan of the worker did not start") as failed:
        stack.up()
    last = str(failed.value).rstrip().splitlines()[-1]
    assert told in last
