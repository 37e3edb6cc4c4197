"""How a worker takes deliveries from a Redis: several at once as far as it has room, in the order of its queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import pytest
import redis
from kombu.connection import Connection
from redis.exceptions import ResponseError

from features.stack.redis_server import RedisServer
from palaver.delivery.deliveries import transport_options
from palaver.steps.leases import Delivery
from palaver.steps.wire import in_redis
from palaver.vocabulary.step_kinds import MODEL, RECOVERED, TOOL
from tests.waiting import eventually
from workers.broker.reading import ConsumerTransport

pytestmark = pytest.mark.process
QUEUES = (MODEL.queue + RECOVERED, MODEL.queue)


class Reader:
    """A worker's channel, and what came on it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.queues: Sequence[str] = QUEUES
        self._channel: Any = connection.channel()
        self.kept: list[Any] = []

    def begin(self, places: int) -> None:
        """Read its queues, with room for so many deliveries."""
        self._channel.basic_qos(0, places, False)
        for queue in self.queues:
            self._channel.basic_consume(queue, no_ack=False, callback=self.kept.append, consumer_tag=queue)

    def read(self, within: float = 10) -> int:
        """How many came together; 0 if nothing comes."""
        before = len(self.kept)
        with suppress(TimeoutError):
            self._connection.drain_events(timeout=within)
        return len(self.kept) - before

    def ask(self) -> None:
        """Put the question, and do not wait for an answer."""
        self._connection.transport.cycle.on_poll_start()

    def leave(self) -> None:
        """Consume no more, and close."""
        for queue in self.queues:
            self._channel.basic_cancel(queue)
        self._channel.close()

    def end(self, count: int) -> None:
        """Make room again, as the oldest so many have ended."""
        for message in self.kept[:count]:
            message.ack()
        del self.kept[:count]


@pytest.fixture
def raw(server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as raw:
        raw.flushall()
        yield raw


@pytest.fixture
def reader(server: RedisServer, raw: redis.Redis) -> Iterator[Reader]:
    options = transport_options(server.url)
    with Connection(server.url, transport=ConsumerTransport, transport_options=options) as connection:
        yield Reader(connection)


@pytest.fixture
def send(raw: redis.Redis) -> Callable[..., None]:
    def send(numbers: range, queue: str = MODEL.queue) -> None:
        run, conversation = "run_00" + "1" * 26, "conv_00" + "2" * 26
        raw.lpush(queue, *(in_redis(Delivery(queue, run, conversation, "1", number)) for number in numbers))

    return send


def numbers(reader: Reader) -> list[int]:
    return [message.decode()[0][3] for message in reader.kept]


def test_an_eighth_of_the_places_is_filled_at_once(reader: Reader, send: Callable[..., None]) -> None:
    send(range(20))
    reader.begin(places=50)
    assert [reader.read() for _ in range(4)] == [6, 6, 6, 2]
    assert numbers(reader) == [*range(20)]


def test_no_more_come_than_there_is_room_for(reader: Reader, send: Callable[..., None]) -> None:
    send(range(30))
    reader.begin(places=20)
    assert [reader.read() for _ in range(10)] == [2] * 10
    reader.end(1)
    assert reader.read() == 1
    reader.end(2)
    assert reader.read() == 2
    assert numbers(reader) == [*range(3, 23)]


def test_few_places_are_filled_one_by_one_and_many_by_handfuls(reader: Reader, send: Callable[..., None]) -> None:
    send(range(40))
    reader.begin(places=15)
    assert [reader.read() for _ in range(4)] == [1] * 4
    reader.begin(places=1000)
    assert reader.read() == 16


def test_what_was_recovered_comes_first(reader: Reader, send: Callable[..., None]) -> None:
    send(range(3))
    send(range(3, 6), MODEL.queue + RECOVERED)
    reader.begin(places=80)
    assert [reader.read(), reader.read()] == [3, 3]
    assert numbers(reader) == [3, 4, 5, 0, 1, 2]


def test_models_and_tools_come_in_turns(reader: Reader, send: Callable[..., None]) -> None:
    """However much of a kind waits, the other kind comes next; those of one kind come in the order of its queues."""
    reader.queues = (*QUEUES, "tools.gpu", TOOL.queue)
    send(range(4))
    send(range(4, 6), MODEL.queue + RECOVERED)
    send(range(6, 8), TOOL.queue)
    send(range(8, 10), "tools.gpu")
    reader.begin(places=15)
    assert [reader.read() for _ in range(10)] == [1] * 10
    assert numbers(reader) == [4, 8, 5, 9, 0, 6, 1, 7, 2, 3]


def test_what_is_no_message_is_left_out_and_the_others_come(
    reader: Reader, send: Callable[..., None], raw: redis.Redis
) -> None:
    send(range(2))
    raw.lpush(MODEL.queue, "no message")
    send(range(2, 4))
    reader.begin(places=80)
    assert reader.read() == 4
    assert numbers(reader) == [0, 1, 2, 3]


def test_a_server_that_refuses_is_asked_once_a_second_until_it_does_not(
    reader: Reader, send: Callable[..., None], raw: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    send(range(3))
    raw.execute_command("ACL", "SETUSER", "default", "-blmpop")
    try:
        reader.begin(places=80)
        began = monotonic()
        while len(caplog.records) < 2:
            assert reader.read(within=0.05) == 0
        assert monotonic() - began >= 1
    finally:
        raw.execute_command("ACL", "SETUSER", "default", "+@all")
    assert "it takes Redis 7.0 or later" in caplog.text
    assert eventually(lambda: reader.read(within=0.05), within=10) == 3


def test_another_error_of_the_server_is_no_matter_of_its_version(
    reader: Reader, send: Callable[..., None], raw: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    raw.set(MODEL.queue, "no list")
    reader.begin(places=80)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        reader.read()
    assert not caplog.records
    raw.delete(MODEL.queue)
    send(range(3))
    assert reader.read() == 3


def test_what_comes_when_it_is_no_longer_wanted_goes_back(
    reader: Reader, send: Callable[..., None], raw: redis.Redis
) -> None:
    """A worker that drains still has a question out: what answers it is for others."""
    reader.begin(places=80)
    reader.ask()
    send(range(5))
    reader.leave()
    assert reader.kept == []
    assert raw.llen(MODEL.queue) == 5
