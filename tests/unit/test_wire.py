"""A delivery as it lies in the broker: what was sent is read, and nothing else is."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from contextlib import suppress
from typing import Any

import orjson
import pytest
from amqp.basic_message import Message as Sent
from celery import Celery
from hypothesis import given, settings
from hypothesis import strategies as st
from kombu.transport.pyamqp import Message

from palaver.delivery.deliveries import QUEUE_NAMES
from palaver.steps.leases import Delivery
from palaver.steps.wire import body_of, delivery_in, headers_of, in_redis, payload_of
from palaver.vocabulary.limits import exceeded, limit_of
from workers.broker.reading import let_in
from workers.broker.remote import COMMANDS, Control, command_in

IDS = st.text("0123456789abcdefghjkmnpqrstvwxyz", min_size=26, max_size=26)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
SENT = st.builds(
    lambda queue, run, conversation, seq, call, number, title: Delivery(
        queue,
        f"run_00{run}",
        f"conv_00{conversation}",
        f"{seq}/{call}" if "tools" in queue else f"{seq}",
        number,
        title,
    ),
    st.sampled_from([*QUEUE_NAMES, "tools.gpu", "tools.gpu.recovered"]),
    IDS,
    IDS,
    st.integers(1, 999_999_999),
    st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True),
    st.integers(0, 2**53 - 1),
    st.from_regex(r"([!-~]{1,265}( for [!-~]{1,64})?)?", fullmatch=True),
)
DELIVERY = Delivery("model", "run_00" + "1" * 26, "conv_00" + "2" * 26, "1", 1)


@settings(deadline=None)
@given(SENT)
def test_what_is_sent_is_read(sent: Delivery) -> None:
    headers = orjson.loads(orjson.dumps(headers_of(sent, "somebody")))
    body = body_of(sent).encode()
    assert delivery_in(sent.queue, headers, body) == sent
    assert len(body) + len(orjson.dumps(headers)) < limit_of("delivery") / 4


def test_the_longest_names_fit() -> None:
    sent = DELIVERY._replace(title=f"{'🙂' * 265} for {'🙂' * 64}")
    headers = headers_of(sent)
    assert delivery_in("model", headers, body_of(sent).encode()) == sent
    assert len(json.dumps(headers)) < 0.6 * limit_of("delivery")


@pytest.mark.parametrize("title", ["a\nb", "a b", "a" * 300, "a for b for c", "a for \x1b[2J", 7, None, ["a"]])
def test_what_is_no_title_is_left_out(title: Any) -> None:
    headers = {**headers_of(DELIVERY), "title": title}
    assert delivery_in("model", headers, body_of(DELIVERY).encode()) == DELIVERY


@pytest.mark.slow
@settings(deadline=None)
@given(VALUES, VALUES)
def test_anything_else_is_nothing_and_raises_nothing(headers: Any, body: Any) -> None:
    for queue in QUEUE_NAMES:
        assert delivery_in(queue, headers, orjson.dumps(body)) is None
        assert delivery_in(queue, headers_of(DELIVERY), orjson.dumps(body)) is None


@settings(deadline=None)
@given(st.binary(max_size=200) | VALUES.map(orjson.dumps))
def test_no_bytes_of_a_broker_raise(raw: bytes) -> None:
    for queue in (*QUEUE_NAMES, "/0.celery.pidbox", "x.reply.celery.pidbox"):
        assert let_in(raw, queue) is None
    assert delivery_in("model", headers_of(DELIVERY), raw) is None
    assert command_in({}, raw, "replies") is None


@pytest.mark.slow
@settings(deadline=None)
@given(st.sampled_from(sorted(COMMANDS)), st.dictionaries(st.text(max_size=12), VALUES, min_size=1, max_size=3))
def test_a_command_with_more_than_it_may_have_is_none(name: str, more: dict[str, Any]) -> None:
    assert command_in({"clock": 1}, orjson.dumps({"method": name}), "replies") is not None
    assert command_in({"clock": 1}, orjson.dumps({"method": name, "more": 1, **more}), "replies") is None


def test_what_flower_sends_as_it_begins_to_listen_is_a_command() -> None:
    """It asks all workers for a heartbeat, at its start and each time it connects again."""
    heard, before = list[str](), exceeded["remote_commands"]
    with (
        Celery("flower", broker="memory://", control=Control, set_as_current=False) as flower,
        flower.connection_for_read() as connection,
    ):
        worker = flower.control.mailbox.Node("worker@here", handlers={}, channel=connection.default_channel)
        worker.listen(callback=lambda command, _: heard.append(command["method"]))
        flower.events.Receiver(connection, handlers={}).wakeup_workers(channel=connection.default_channel)
        with suppress(TimeoutError):
            connection.drain_events(timeout=1)
    assert heard == ["heartbeat"]
    assert exceeded["remote_commands"] == before


@pytest.mark.parametrize("name", ["eta", "expires", "group", "retries", "timelimit"])
def test_a_delivery_asks_for_nothing_else(name: str) -> None:
    asking = headers_of(DELIVERY) | {name: 1}
    assert delivery_in("model", asking, body_of(DELIVERY).encode()) is None


@pytest.mark.slow
def test_a_compressed_message_of_rabbitmq_is_not_inflated() -> None:
    """kombu inflates before it asks anybody; there it finds nobody who can."""
    bomb = zlib.compress(bytes(64 << 20))
    for method in ("gzip", "zlib", "bzip2", "lzma", "application/x-gzip"):
        sent = Sent(bomb, application_headers={"compression": method})
        sent.delivery_info = {"delivery_tag": 1}
        message = Message(sent)
        assert message.errors
        assert message.body == bomb


@pytest.mark.parametrize("headers", [[], [[1, 2]], [["task", "palaver.model_step"]], "", 7])
@pytest.mark.parametrize("queue", [*QUEUE_NAMES, "/0.celery.pidbox"])
def test_headers_are_an_object(headers: Any, queue: str) -> None:
    message = orjson.loads(in_redis(DELIVERY))
    if queue not in QUEUE_NAMES:
        # Of kombu's.
        message["body"] = b64encode(message["body"].encode()).decode()
        message["properties"]["body_encoding"] = "base64"
    assert let_in(orjson.dumps(message), queue) is not None
    assert let_in(orjson.dumps(message | {"headers": headers}), queue) is None


def test_a_message_that_was_read_is_not_read_again() -> None:
    """kombu has a place for what a body says, and asks there first."""
    sent = Sent(b"not json")
    sent.delivery_info = {"delivery_tag": 1}
    message = Message(sent)
    message._decoded_cache = told = payload_of(DELIVERY)
    assert message.payload is told


def test_what_is_dropped_is_counted() -> None:
    before = exceeded.copy()
    assert let_in(b"x" * (limit_of("delivery") + 1), "model") is None
    assert let_in(b"not json", "model") is None
    assert let_in(b"not json", "/0.celery.pidbox") is None
    for name in ("delivery", "not_deliveries", "not_control_messages"):
        assert exceeded[name] == before[name] + 1
