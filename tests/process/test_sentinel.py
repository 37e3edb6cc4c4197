"""Store, broker and Flower on a primary that Sentinels watch: another server takes over, and all goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from redis.exceptions import ConnectionError

from tests.chaos.promises import Clients, check_all
from tests.process.cluster import Cluster
from tests.process.test_role_commands import refused
from tests.process.test_tls import certificate  # noqa: F401  # a fixture
from tests.sentinels import PASSWORD, SentinelGroup, client_of
from tests.tls import tls_of
from tests.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.process, pytest.mark.long]

PROMISES = {"PALAVER_DURABILITY": "replicas=1"}


@pytest.fixture(scope="module")
def group() -> Iterator[SentinelGroup]:
    """With logins of both, as an installation has them."""
    with SentinelGroup(replicas=1, guarded=True).open() as group:
        yield group


@pytest.fixture(scope="module")
def followed(group: SentinelGroup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Palaver whose broker is another database there."""
    environment = {**PROMISES, "PALAVER_BROKER_URL": group.url.replace("/0?", "/1?")}
    folder = tmp_path_factory.mktemp("sentinel")
    with Cluster(folder, redis_url=group.url, processes={"flower": 1}, environment=environment) as cluster:
        yield cluster


def test_flower_counts_what_waits_at_the_primary(followed: Cluster) -> None:
    run = followed.ended(followed.submit("tool-2", tools=["record"]))
    assert (run.status, run.usage.tool_calls) == ("completed", 2)
    with closing(httpx.Client(base_url=followed.stack.flower_url, trust_env=False, timeout=PATIENCE)) as flower:
        eventually(lambda: "model.recovered" in (page := flower.get("/broker")).text and page.is_success)
        assert PASSWORD not in flower.get("/broker").text, "the address of the broker, with a password"


def test_a_primary_that_dies_is_replaced(group: SentinelGroup, followed: Cluster) -> None:
    before = group.primary
    with Clients(followed) as clients:
        _more(clients)
        before.kill()
        group.moved_from(group.port_of(before))
        before.start()
        _more(clients)
    check_all(followed, clients.promised)
    group.settle()


def test_a_primary_that_stands_still_is_left_and_comes_back_as_a_replica(
    group: SentinelGroup, followed: Cluster
) -> None:
    """Its connections say nothing: whoever waited for them to time out would wait for seconds."""
    before = group.primary
    with Clients(followed) as clients, _watching(followed, "say-200+rate-50") as watched:
        _more(clients)
        before.pause()
        group.moved_from(group.port_of(before))
        before.resume()
        _more(clients)
        cancelled = followed.submit("say-1000+rate-50")
        followed.cancel(cancelled)
    check_all(followed, clients.promised)
    assert followed.ended(cancelled).status == "cancelled"
    assert watched.count("run.finished") == 1
    group.settle()
    with group.admin(before) as server:
        assert server.info("replication")["role"] == "slave"


def test_one_sentinel_may_be_away_when_a_failover_is_ordered(group: SentinelGroup, followed: Cluster) -> None:
    away, *_ = group.sentinels
    away.kill()
    try:
        with Clients(followed) as clients:
            _more(clients)
            group.fail_over(through=1)
            _more(clients)
        check_all(followed, clients.promised)
    finally:
        away.start()
        group.settle()


def test_a_primary_that_dies_is_replaced_where_all_speak_tls(certificate: Path, tmp_path: Path) -> None:  # noqa: F811
    """Servers and Sentinels do among themselves as well. Store, broker and Flower trust whom they are told to."""
    with SentinelGroup(replicas=1, guarded=True, tls=tls_of(certificate)).open() as group:
        environment = {**PROMISES, "PALAVER_BROKER_URL": group.url.replace("/0?", "/1?")}
        with Cluster(tmp_path, redis_url=group.url, processes={"flower": 1}, environment=environment) as cluster:
            test_flower_counts_what_waits_at_the_primary(cluster)
            test_a_primary_that_dies_is_replaced(group, cluster)


def test_a_worker_that_cannot_start_says_one_sentence(group: SentinelGroup) -> None:
    status, said = refused("worker", PALAVER_REDIS_URL=group.url, PALAVER_PROVIDERS="/nowhere")
    assert (status, said.count("\n")) == (78, 1), said
    assert "PALAVER_PROVIDERS" in said


def test_sentinels_with_an_unknown_certificate_are_not_asked(certificate: Path) -> None:  # noqa: F811
    with SentinelGroup(replicas=0, sentinels=1, tls=tls_of(certificate)).open() as group:
        address, _, _ = group.url.partition("?")
        for options in ("", "?ssl_check_hostname=false"):
            with (
                pytest.raises(ConnectionError, match="no Sentinel knows the primary"),
                client_of(address + options) as client,
            ):
                client.ping()
        with client_of(f"{address}?ssl_cert_reqs=none") as client:
            assert client.ping(), "asked not to look"


def _more(clients: Clients) -> None:
    """Wait for some more promises."""
    some = len(clients.promised)
    eventually(lambda: len(clients.promised) >= some + 5)


@contextmanager
def _watching(cluster: Cluster, model: str) -> Iterator[list[str]]:
    """Submit a run that talks, and yield the types of the events that a watcher of its one stream sees. On return the
    stream is over."""
    run_id = cluster.submit(model)
    types: list[str] = []

    def watch() -> None:
        with cluster.http.stream("GET", f"/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"}) as answer:
            types.extend(line.removeprefix("event: ") for line in answer.iter_lines() if line.startswith("event: "))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        eventually(lambda: "message.delta" in types)
        yield types
    finally:
        watching.join(60)
