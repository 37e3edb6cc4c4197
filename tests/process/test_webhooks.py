"""Webhooks with real processes: made over the API, and called by a model worker when runs end or wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from redis import Redis
from standardwebhooks import Webhook

from features.stack.redis_server import RedisServer
from palaver import Palaver
from tests.process.cluster import Cluster
from tests.process.inputs import decision
from tests.process.shop_workers import Shop
from tests.process.webhook_receivers import Receivers
from tests.unit.api_world import SECRET_KEY
from tests.waiting import eventually

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, heard: Receivers) -> Iterator[Cluster]:
    """A stack of its own, which may ask the receivers."""
    environment = {"PALAVER_SECRET_KEY": SECRET_KEY, "PALAVER_WEBHOOK_HOSTS": f"127.0.0.1:{heard.port}"}
    with Cluster(tmp_path_factory.mktemp("webhooks"), environment=environment) as made:
        yield made


def test_a_receiver_hears_of_each_end_and_of_what_waits(cluster: Cluster, heard: Receivers) -> None:
    with Palaver(cluster.stack.url) as client:
        made = client.create_webhook(heard.url("ok"))
        slow = client.create_webhook(heard.url("never"))
        ended = [cluster.submit("echo") for _ in range(3)]
        failed = cluster.submit("401")
        asked = cluster.submit("tool-1", tools=["send"])
        action = eventually(lambda: cluster.run(asked).pending_actions[0])
        cluster.put(asked, {**decision("all", "approve"), "action_id": action.id})
        expected = {
            *((run_id, "run.succeeded") for run_id in (*ended, asked)),
            (failed, "run.failed"),
            (asked, "run.action_required"),
        }

        def events() -> set[tuple[str, str]]:
            webhook, found = Webhook(made.secret), set()
            for headers, body, _ in heard.events("ok"):
                event: Any = webhook.verify(body, headers)
                found.add((event["data"]["run_id"], event["type"]))
            return found

        eventually(lambda: events() == expected, why="each event, and no other one")
        eventually(lambda: client.webhook(made.id).delivered == len(expected))
        deliveries = [*client.deliveries(made.id)]
        assert {(each.run_id, each.type) for each in deliveries} == expected
        assert all([attempt.status for attempt in each.attempts] == [204] for each in deliveries)
        assert client.webhook(slow.id).pending == len(expected)
        replayed = client.replay_deliveries(made.id, [deliveries[0].id])
        assert replayed.replayed == 1
        eventually(lambda: len(heard.events("ok")) == len(expected) + 1)
        again = heard.events("ok")[-1]
        assert again[0]["webhook-id"] == deliveries[0].id
        assert orjson.loads(again[1])["data"] == deliveries[0].data
        for webhook in client.webhooks():
            client.delete_webhook(webhook.id)
        assert client.webhooks() == ()


def test_a_celery_task_hears_of_each_end_once_though_its_broker_and_workers_die(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """The broker is away for some ends, and a worker dies amid others."""
    file = tmp_path / "webhooks.toml"
    file.write_text(
        '[webhooks.shop]\ntask = "tests.process.shop.run_ended"\nqueue = "shop"\nbroker_env = "SHOP_BROKER"\n'
    )
    with RedisServer(data_dir=tmp_path / "shop") as redis:
        shop = Shop(tmp_path, redis, {})
        shop.start("shop")
        environment = {"PALAVER_WEBHOOKS": str(file), "SHOP_BROKER": shop.broker}
        with Cluster(tmp_path_factory.mktemp("tasks"), environment=environment) as cluster:
            runs = {cluster.submit("echo"): "run.succeeded", cluster.submit("401"): "run.failed"}
            eventually(lambda: {*heard_of(shop)} == runs.items(), why="the task hears of both")
            redis.kill()
            runs |= {cluster.submit("echo"): "run.succeeded" for _ in range(3)}
            for run_id in runs:
                cluster.ended(run_id)
            cluster.kill("worker")
            cluster.start("worker")
            redis.start()
            eventually(lambda: {*heard_of(shop)} == runs.items(), why="the task hears of all")
            with Palaver(cluster.stack.url) as client:
                (webhook,) = client.webhooks()
                assert (webhook.url, webhook.of_file) == ("celery:tests.process.shop.run_ended", True)
                eventually(lambda: client.webhook(webhook.id).delivered == len(runs))
                deliveries = [*client.deliveries(webhook.id)]
            assert {f"shop.{each.id}" for each in deliveries} == {*ids_of(shop)}
        with Redis.from_url(redis.url) as server:
            assert server.llen("shop") == 0
        shop.close()


def heard_of(shop: Shop) -> list[tuple[str, str]]:
    """The runs that the task heard of, and what."""
    return [(run, kind) for kind, run, _ in _heard(shop)]


def ids_of(shop: Shop) -> list[str]:
    """The ids of these tasks."""
    return [task for _, _, task in _heard(shop)]


def _heard(shop: Shop) -> list[tuple[str, str, str]]:
    path = shop.folder / "ledger"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(kind, run, task) for word, kind, run, task in lines if word == "heard"]
