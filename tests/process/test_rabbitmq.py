"""RabbitMQ as the broker: what differs from Redis. The whole suite runs on it with PALAVER_TEST_BROKER=rabbitmq."""

from __future__ import annotations

import base64
import re
import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu.connection import Connection
from kombu.exceptions import OperationalError

from features.stack.ports import free_port
from features.stack.redis_server import RedisServer
from palaver.delivery.deliveries import Publisher
from palaver.steps.leases import Delivery
from palaver.vocabulary.step_kinds import KIND_OF, WINDOW, StepKind
from tests.process.broker import ON_RABBITMQ
from tests.process.cluster import LEASE, Cluster
from tests.process.every_source import EverySource, file_of_tasks
from tests.process.one_more import another
from tests.process.pool_bench import Bench, exit_code
from tests.process.rabbitmq import RabbitServer, find_server
from tests.process.shop_workers import Shop
from tests.process.test_hostile_broker import (
    HARMLESS,
    HOSTILE,
    SPARE,
    commands,
    raw,
    resident,
    said_little,
    still_works,
    workers,
)
from tests.process.test_tls import certificate  # noqa: F401  # a fixture
from tests.waiting import eventually

BROKEN = (
    "ConnectionResetError",
    "BrokenPipeError",
    "RecoverableConnectionError",
    "Server unexpectedly closed connection",
)
"""What a connection to a broker that died ends in."""
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        find_server() is None and not ON_RABBITMQ,
        reason="RABBITMQ IS NOT TESTED: there is no rabbitmq-server; apt-get install rabbitmq-server",
    ),
]

PATIENCE = 2.0
"""Seconds after which the node closes the channel of a consumer that keeps a delivery."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Where workers of somebody else's application report, as their broker is no Redis."""
    with RedisServer(data_dir=tmp_path_factory.mktemp("reports")) as server:
        yield server


@pytest.fixture(scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory, reports: RedisServer) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("rabbitmq")
    sources, broker = folder / "tools.toml", folder / "broker"
    sources.write_text(file_of_tasks('reports_env = "SHOP_REPORTS"'))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEDS", str(folder / "deeds"))
        environment = {
            "PALAVER_TOOL_SOURCES": str(sources),
            "SHOP_BROKER_FILE": str(broker),
            "SHOP_REPORTS": reports.url,
        }
        cluster = Cluster(folder, rabbitmq=True, environment=environment)
        broker.write_text(server(cluster).url)
        with cluster:
            yield cluster


@pytest.fixture(autouse=True)
def spare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that no worker consumes: of a kind of step that only this process knows."""
    monkeypatch.setitem(KIND_OF, "spare", StepKind("spare", queue="spare"))


def server(cluster: Cluster) -> RabbitServer:
    assert cluster.rabbitmq
    return cluster.rabbitmq


def test_a_run_with_tools_and_a_cancel(cluster: Cluster) -> None:
    runs = [cluster.submit("tool-3", tools=["record", "calculator"]) for _ in range(10)]
    long = cluster.submit("say-400+rate-20")
    cluster.saw(long, "message.delta")
    cluster.cancel(long)
    assert cluster.ended(long).status == "cancelled"
    assert cluster.outcomes(long) == ["disconnected"]
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"
        assert len(cluster.model_calls(run_id)) == 4


@pytest.mark.parametrize(
    ("right", "wrong"), [("guest:guest", "guest:wrong"), ("//$", "/nowhere")], ids=["login", "host"]
)
def test_a_broker_that_refuses_a_worker_is_a_line_a_second(cluster: Cluster, right: str, wrong: str) -> None:
    """And the worker is there, and named as one that is refused."""
    worker = another(cluster, "worker", "refused", PALAVER_BROKER_URL=re.sub(right, wrong, server(cluster).url))
    worker.start()
    try:
        eventually(lambda: worker.output.count("refuses this process") >= 5)
        lines = worker.output.splitlines()
        said = [line for line in lines if "refuses this process" in line]
        assert all("ACCESS_REFUSED" in line or "NOT_ALLOWED" in line for line in said)
        # Besides its first words.
        assert len(lines) < len(said) + 40
        assert "Traceback" not in worker.output

        def named() -> bool:
            queues = cluster.http.get("/v1/queues").json()["data"]
            return any("login" in each["refused"] for queue in queues for each in queue["refused"])

        eventually(named, why="the worker that is refused is not named")
        assert "login" in cluster.http.get("/readyz").text
        assert cluster.ended(cluster.submit("echo")).status == "completed"
    finally:
        worker.kill(signal.SIGKILL)


def test_a_killed_worker_and_what_it_held(cluster: Cluster) -> None:
    cluster.start("worker")
    runs = [cluster.submit("tool-3+rate-50", tools=["record", "record_idempotent"]) for _ in range(20)]
    cluster.saw(runs[-1], "step.started")
    cluster.kill("worker")
    cluster.kill("tools")
    cluster.start("tools")
    for run_id in runs:
        assert cluster.ended(run_id).status == "completed"


def test_the_broker_dies_with_everything_in_flight(cluster: Cluster) -> None:
    """What is worked on goes on and is not begun again; what is next waits for the broker."""
    workers = cluster.stack.pids("worker") + cluster.stack.pids("tools")
    runs = [cluster.submit("tool-3+rate-20", tools=["record", "calculator"]) for _ in range(10)]
    long = cluster.submit(f"say-{int(20 * 2 * LEASE)}+rate-20")
    cluster.saw(long, "message.delta")
    with closing(Publisher(cluster.broker.url)) as publisher:
        publisher.publish([delivery("spare", 0)])
        # Celery logs, and goes on, when it cannot acknowledge any more, or reads a dead connection as it cleans up.
        cluster.expect_traceback(*BROKEN)
        server(cluster).kill()
        during = cluster.submit("tool-1", tools=["record"])
        server(cluster).start()
        # A queue that was made just before a crash may be gone with it; asking for its depth makes it again.
        cluster.broker.depth("spare")
        cluster.broker.take("spare")
        publisher.publish([delivery("spare", 1)])
        eventually(lambda: publisher.depth("spare") == 1, why="it went into the connection that was closed")
    cluster.broker.take("spare")
    for run_id in (*runs, during, long):
        assert cluster.ended(run_id).status == "completed"
    assert len(cluster.model_calls(long)) == 1
    assert cluster.stack.pids("worker") + cluster.stack.pids("tools") == workers


def test_the_broker_hangs_for_a_while(cluster: Cluster) -> None:
    runs = [cluster.submit("tool-3+rate-20", tools=["record", "calculator"]) for _ in range(10)]
    cluster.saw(runs[-1], "message.delta")
    server(cluster).pause()
    during = cluster.submit("tool-1", tools=["record"])
    until = time.monotonic() + 3
    eventually(lambda: time.monotonic() >= until)
    server(cluster).resume()
    for run_id in (*runs, during):
        assert cluster.ended(run_id).status == "completed"


def test_lost_and_doubled_deliveries(cluster: Cluster) -> None:
    cluster.kill("worker")
    runs = [cluster.submit("tool-2", tools=["record"]) for _ in range(20)]
    eventually(lambda: cluster.broker.depth("model") == WINDOW)
    cluster.broker.lose()
    doubled = [cluster.submit("tool-2", tools=["record"]) for _ in range(10)]
    cluster.broker.double("model", 5)
    cluster.start("worker")
    for run_id in (*runs, *doubled):
        assert cluster.ended(run_id).status == "completed"
        assert len(cluster.model_calls(run_id)) == 3


def test_what_is_recovered_passes_the_backlog(cluster: Cluster) -> None:
    with closing(Publisher(cluster.broker.url)) as publisher:
        publisher.publish([delivery("spare", number) for number in range(5)])
        publisher.publish([delivery("spare.recovered", 5)])
        eventually(lambda: publisher.depth("spare") == 6)
    numbers = [message["id"].rpartition(":")[2] for message in cluster.broker.take("spare")]
    assert numbers == ["5", "0", "1", "2", "3", "4"]


@pytest.mark.parametrize("queue", ["model", "tools"])
def test_no_message_ends_a_worker_or_stays_in_it(cluster: Cluster, queue: str) -> None:
    still_works(cluster)
    known, said = workers(cluster), len(server(cluster).log)
    before = {pid: resident(pid) for pid in known}
    with closing(Connection(cluster.broker.url)) as connection, closing(connection.channel()) as channel:
        for what, make in {**HOSTILE, **HARMLESS}.items():
            for _ in range(3):
                channel.basic_publish(as_amqp(channel, make(queue)), exchange="", routing_key=queue)
            eventually(lambda: not cluster.broker.depth(queue), why=f"{what} is taken")
            assert workers(cluster) == known, what
        for message in commands().values():
            channel.basic_publish(as_amqp(channel, message), exchange="celery.pidbox")
    with Celery("asking", broker=cluster.broker.url, set_as_current=False) as asking:
        # They have taken all of that by the time they answer.
        assert len(asking.control.ping(timeout=30, limit=len(known))) == len(known)
    still_works(cluster)
    # Each delivery of a closed channel would be handed out again.
    assert "caused a channel exception" not in server(cluster).log[said:]
    assert workers(cluster) == known
    # A delivery is acknowledged behind the end of its step.
    eventually(cluster.broker.empty)
    for pid, bytes_before in before.items():
        assert resident(pid) - bytes_before < SPARE
    said_little(cluster, "worker" if queue == "model" else queue)


def as_amqp(channel: Any, made: Any) -> Any:
    """One of those messages as RabbitMQ takes it: where it has no body or headers that AMQP knows, other ones."""
    told = made if isinstance(made, dict) else {}
    try:
        body = base64.b64decode(told["body"], validate=True)
    except (KeyError, ValueError):
        body = raw(made)
    headers = told.get("headers")
    if isinstance(headers, dict):
        headers = {name: min(value, 2**62) if isinstance(value, int) else value for name, value in headers.items()}
    return channel.prepare_message(
        body,
        content_type=told.get("content-type", "application/json"),
        content_encoding=told.get("content-encoding", "utf-8"),
        headers=headers if isinstance(headers, dict) else {"task": "palaver.model_step"},
        properties={"reply_to": "model"},
    )


def delivery(queue: str, number: int) -> Delivery:
    return Delivery(queue, "run_00" + "1" * 26, "conv_00" + "2" * 26, "1", number)


@pytest.fixture(scope="module")
def tls_port() -> int:
    """Where the node below speaks TLS."""
    return free_port()


@pytest.fixture(scope="module")
def impatient(
    tmp_path_factory: pytest.TempPathFactory,
    certificate: Path,  # noqa: F811
    tls_port: int,
) -> Iterator[RabbitServer]:
    """A node that closes the channel of a consumer that keeps a delivery for long; it speaks TLS as well."""
    options = (
        f"listeners.ssl.default = 127.0.0.1:{tls_port}\n"
        f"ssl_options.certfile = {certificate}\n"
        f"ssl_options.keyfile = {certificate.with_name('key.pem')}\n"
        f"consumer_timeout = {int(1000 * PATIENCE)}\n"
    )
    # How often it looks is not for rabbitmq.conf.
    node = RabbitServer(tmp_path_factory.mktemp("impatient"), options=options, variables="{channel_tick_interval, 200}")
    try:
        node.start()
        yield node
    finally:
        node.close()


def test_tasks_of_an_application_on_a_broker_that_restarts(
    cluster: Cluster, reports: RedisServer, tmp_path: Path
) -> None:
    """Its broker is RabbitMQ, and its workers report to a Redis: answered, cancelled, and waited for by two workers."""
    cluster.expect_traceback("WorkerLostError", *BROKEN)
    shop = Shop(tmp_path, reports, {}, "tests.process.deed_app", rabbitmq=server(cluster).url)
    every = EverySource(cluster, shop, port=0)
    shop.start("celery", "-c", "4")
    try:
        answered, failed = every.ask("celery", "answer"), every.ask("celery", "fail")
        assert (every.told(answered), every.error(failed)) == (f"did {answered.key}", "tool_error")
        (stopped,) = every.under_way(["celery"])
        cluster.cancel(stopped.run_id)
        assert cluster.ended(stopped.run_id).status == "cancelled"
        eventually(lambda: every.lines()[f"left {stopped.key}"])
        (waited_for,) = every.under_way(["celery"])
        cluster.kill("tools")
        # It writes acknowledgements late: one that is killed may deliver again what a worker has begun.
        server(cluster).stop()
        server(cluster).start()
        cluster.start("tools")
        every.release(waited_for)
        assert every.told(waited_for) == f"did {waited_for.key}"
        for each in (answered, failed, stopped, waited_for):
            assert every.begun(each) == 1, each
    finally:
        shop.kill("celery")


@pytest.mark.parametrize(("interval", "closed"), [(PATIENCE / 4, False), (300.0, True)], ids=["let go", "kept"])
def test_a_step_takes_longer_than_rabbitmq_waits(
    impatient: RabbitServer, tmp_path: Path, interval: float, closed: bool
) -> None:
    """Deliveries are let go of in time. If they were not, the worker would connect again rather than exit."""
    bench = Bench(impatient, tmp_path)
    with closing(bench), bench.worker("-c", "1", let_go=str(interval)) as worker:
        known = len(impatient.log)
        bench.send("hold", "long")
        bench.saw("begin long")
        until = time.monotonic() + 2 * PATIENCE
        refused = "delivery acknowledgement on channel"
        eventually(lambda: time.monotonic() >= until or refused in impatient.log[known:])
        assert (refused in impatient.log[known:]) == closed
        bench.open()
        bench.saw("end long")
        bench.send("nap", 0, "after")
        bench.saw("end after")
        worker.terminate()
        assert exit_code(worker) == 0
    assert ("onnection to broker lost" in bench.tail()) == closed
    assert "Couldn't ack" not in bench.tail()
    # What came over a channel that is closed is not acknowledged on the next one.
    assert "unknown delivery tag" not in impatient.log[known:]


def test_tls(impatient: RabbitServer, certificate: Path, tls_port: int, tmp_path: Path) -> None:  # noqa: F811
    """Publishers and workers speak it, and trust whom they are told to."""
    plain = f"amqps://guest:guest@127.0.0.1:{tls_port}//"
    trusting = f"{plain}?ssl_ca_certs={certificate}"

    def published(url: str) -> bool:
        with closing(Publisher(url)) as publisher, suppress(OperationalError):
            publisher.publish([delivery("spare", 0)])
            return True
        return False

    assert not published(plain)
    assert not published(f"{plain}?ssl_check_hostname=false")
    assert published(f"{plain}?ssl_cert_reqs=none"), "asked not to look"
    assert published(trusting)
    bench = Bench(impatient, tmp_path)
    with closing(bench), bench.worker("-c", "1", broker=trusting):
        bench.send("nap", 0, "hidden")
        bench.saw("end hidden")
