"""The publisher of an event loop, on the broker that most have: what lies in Redis, how it came there, and what not."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import Any

import orjson
import pytest
from kombu.transport.redis import Channel
from redis import Redis

from features.stack.ports import free_port
from features.stack.redis_server import RedisServer
from palaver.delivery import publishing
from palaver.delivery.deliveries import Publisher
from palaver.delivery.publishing import LoopPublisher
from palaver.steps.leases import Delivery
from palaver.store.fleet import queue_lists
from tests.chaos.faulty_proxy import FaultyProxy
from tests.waiting import aeventually

pytestmark = pytest.mark.process

RUN, CONVERSATION = "run_00" + "1" * 26, "conv_00" + "2" * 26


def model(number: int) -> Delivery:
    """The delivery of a model step."""
    return Delivery("model", RUN, CONVERSATION, str(number), 1, "fake/echo for support")


def tool(number: int) -> Delivery:
    """The delivery of a call, a recovered one."""
    return Delivery("tools.recovered", RUN, CONVERSATION, f"{number}/call_9", 2)


@pytest.fixture
def redis(server: RedisServer) -> Iterator[Any]:
    """The server, empty."""
    with Redis.from_url(server.url) as redis:
        redis.flushall()
        yield redis
        redis.flushall()


@pytest.fixture
async def publisher(server: RedisServer, redis: Any) -> AsyncIterator[LoopPublisher]:
    made = LoopPublisher(server.url)
    yield made
    await made.close()


def lying(redis: Any, queue: str) -> list[dict[str, Any]]:
    """The messages in a queue, in the order in which a worker would get them."""
    return [orjson.loads(raw) for raw in reversed(redis.lrange(queue, 0, -1))]


def steps(redis: Any, queue: str) -> list[str]:
    """The ids of the tasks in a queue, in that order."""
    return [message["headers"]["id"] for message in lying(redis, queue)]


class Next(random.Random):
    """What may happen does so the next time, if that is asked for, and never else."""

    asked = False

    def random(self) -> float:
        asked, self.asked = self.asked, False
        return 0.0 if asked else 1.0


def pushes(redis: Any) -> int:
    """How many times somebody pushed."""
    return int(redis.info("commandstats").get("cmdstat_lpush", {"calls": 0})["calls"])


@pytest.mark.parametrize("delivery", [model(3), tool(7)], ids=["model", "tool"])
async def test_a_message_is_kombus_own_in_every_field(
    server: RedisServer, redis: Any, publisher: LoopPublisher, delivery: Delivery
) -> None:
    with closing(Publisher(server.url)) as kombu:
        kombu.publish([delivery])
    publisher.publish_soon([delivery])
    await aeventually(lambda: redis.llen(delivery.queue) == 2)
    theirs, ours = lying(redis, delivery.queue)
    # Theirs is in base64.
    encoding = theirs["properties"].pop("body_encoding")
    assert ours["properties"].pop("body_encoding") is None
    ours["body"] = Channel.codecs[encoding].encode(ours["body"])
    tags = {message["properties"].pop("delivery_tag") for message in (theirs, ours)}
    assert {type(tag) for tag in tags} == {str}
    assert len(tags) == 2
    assert ours == theirs


async def test_what_comes_in_one_turn_is_one_push_a_queue_in_order(redis: Any, publisher: LoopPublisher) -> None:
    before = pushes(redis)
    for number in range(1, 6):
        publisher.publish_soon([model(number), tool(number)])
    await publisher.close()
    assert pushes(redis) - before == 2
    assert steps(redis, "model") == [model(number).task_id for number in range(1, 6)]
    assert steps(redis, "tools.recovered") == [tool(number).task_id for number in range(1, 6)]
    assert await publisher.depth("tools") == await publisher.depth("model") == 5
    assert await publisher.depth("nothing.like.it") == 0


async def test_more_than_fit_together_come_all_and_in_order(redis: Any, publisher: LoopPublisher) -> None:
    publisher.publish_soon([model(number) for number in range(1, 251)])
    await publisher.close()
    assert steps(redis, "model") == [model(number).task_id for number in range(1, 251)]


async def test_it_is_closed_behind_the_last_one_and_opens_again(redis: Any, publisher: LoopPublisher) -> None:
    publisher.publish_soon([])
    publisher.publish_soon([model(1)])
    await publisher.close()
    assert steps(redis, "model") == [model(1).task_id]
    publisher.publish_soon([model(2)])
    await publisher.close()
    assert len(steps(redis, "model")) == 2


async def test_no_more_than_the_backlog_waits(
    redis: Any, publisher: LoopPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_BACKLOG", 3)
    for number in range(1, 6):
        publisher.publish_soon([model(number), tool(number)])
    await publisher.close()
    assert (len(steps(redis, "model")), len(steps(redis, "tools.recovered"))) == (2, 1)


async def test_a_broker_that_is_away_is_told_by_ids_and_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    away = LoopPublisher(f"redis://user:s3cret@127.0.0.1:{free_port()}/0")
    with caplog.at_level(logging.WARNING, logger="palaver.delivery.publishing"):
        away.publish_soon([model(1), tool(2)])
        await away.close()
    assert f"not published, left to the sweeper: {model(1).task_id} {tool(2).task_id} (ConnectionError)" in caplog.text
    assert "s3cret" not in caplog.text


async def test_a_push_whose_answer_is_lost_is_told_and_not_made_again(
    server: RedisServer, redis: Any, caplog: pytest.LogCaptureFixture
) -> None:
    chance = Next()
    with FaultyProxy(server.port, chance).open() as proxy:
        publisher = LoopPublisher(proxy.redis_url)
        publisher.publish_soon([model(1)])
        await aeventually(lambda: steps(redis, "model") == [model(1).task_id])
        proxy.losing, chance.asked = 0.5, True
        publisher.publish_soon([model(2)])
        await aeventually(lambda: "not published, left to the sweeper" in caplog.text)
        publisher.publish_soon([model(3)])
        await aeventually(lambda: model(3).task_id in steps(redis, "model"))
        assert steps(redis, "model") == [model(number).task_id for number in (1, 2, 3)]
        await publisher.close()


async def test_a_broker_that_says_nothing_holds_up_what_waits_for_it_and_no_longer_than_that(
    server: RedisServer, redis: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultyProxy(server.port).open() as proxy:
        publisher = LoopPublisher(proxy.redis_url)
        publisher.publish_soon([model(1)])
        await aeventually(lambda: steps(redis, "model") == [model(1).task_id])
        proxy.blackhole = True
        monkeypatch.setattr(queue_lists, "_PATIENCE", 0.2)
        publisher.publish_soon([model(2)])
        await aeventually(lambda: f"{model(2).task_id} (TimeoutError)" in caplog.text)
        monkeypatch.undo()
        proxy.heal()
        publisher.publish_soon([model(3)])
        await publisher.close()
        assert steps(redis, "model") == [model(1).task_id, model(3).task_id]
