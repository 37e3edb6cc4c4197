"""The filter for the bytes that lie in a Redis broker: it decides which of them kombu sees.

A client that may write to the broker may write anything there, and kombu takes it on trust: text that is no JSON, a
body that inflates to gigabytes, a tag that two messages share (so that none of them counts) end the process that reads
it or fill its memory. So each message is taken apart before kombu sees it, and put together again from the few parts
that a message of Celery's has. A message that cannot be is dropped: counted (`palaver.vocabulary.limits.exceeded`), and
logged without its content.

A worker with room for several deliveries takes several at once: a question for each, and a turn of Celery's loop, would
be a fifth of what a step costs.

It leans on `Channel._brpop_start` and `_brpop_read`, `_handle_message`, `_put_fanout`, `get_table` and
`_refresh_binding` of kombu 5.7, held by tests/contract/test_reading.py, tests/process/test_hostile_broker.py,
test_flower.py and test_acl.py.
"""

from __future__ import annotations

import binascii
import logging
from collections import Counter
from itertools import count
from queue import Empty
from time import monotonic
from typing import Any, Final

import orjson
from kombu import compression
from kombu.transport import redis

from palaver.delivery import deliveries
from palaver.steps.wire import CONTENT_ENCODING, CONTENT_TYPE
from palaver.vocabulary.limits import count_exceeded, limit_of
from palaver.vocabulary.step_kinds import StepKind, kind_of, queue_in_broker

log = logging.getLogger("palaver.workers.broker.reading")

_SAY_EVERY: Final = 10.0
"""Seconds between two lines about dropped messages: a flood of messages must not become one of lines."""
_REFUSED_FOR: Final = 1.0
"""Seconds after which a broker that refuses is asked again. Celery would connect again, at once and for ever."""
_TAKE: Final = "BLMPOP"
_NEEDS: Final = "it takes Redis 7.0 or later, or Valkey, and a user that may call it (deploy/users.acl)"
_REFUSALS: Final = ("unknown command", "no permissions")
_SHARE: Final = 8
"""A worker takes deliveries for an eighth of its places at once: what many wait for is not one's alone. One that has a
process for each place has few, and takes one after another."""
_BATCH: Final = 16
"""Deliveries that a worker takes at once, however many places it has: the loop does nothing else meanwhile."""
_ENCODED: Final = (CONTENT_TYPE, CONTENT_ENCODING)
_KOMBUS: Final = "base64"
"""The form of the body of what kombu sends. That of a delivery is mostly as it is (palaver/steps/wire.py)."""
_tags: Final = count(1)


class _Dropped:
    """Counts dropped messages, and logs the number now and then."""

    def __init__(self) -> None:
        self._unlogged: Counter[str] = Counter()
        self._logged_at = float("-inf")

    def __call__(self, limit: str, where: str) -> None:
        """Something that came on `where` went beyond `limit`. Never raises; the line has no word of the content."""
        count_exceeded(limit)
        self._unlogged[f"{where} ({limit})"] += 1
        if monotonic() - self._logged_at >= _SAY_EVERY:
            counts = ", ".join(f"{count} on {what}" for what, count in self._unlogged.items())
            log.warning("dropped messages that are none of Palaver's: %s", counts)
            self._unlogged.clear()
            self._logged_at = monotonic()


dropped = _Dropped()
"""Call it for each message of the broker that is left out."""


def let_in(raw: bytes, queue: str) -> dict[str, Any] | None:
    """Return a message of `queue` as kombu may have it, without its unknown parts; None when it is dropped."""
    is_delivery = queue_in_broker(queue) is not None
    limit = "delivery" if is_delivery else "control_message"
    if len(raw) > limit_of(limit):
        dropped(limit, _kind(queue))
        return None
    try:
        return _anew(orjson.loads(raw), queue if is_delivery else None)
    except (AttributeError, KeyError, TypeError, ValueError):
        dropped("not_deliveries" if is_delivery else "not_control_messages", _kind(queue))
        return None


def _anew(message: Any, queue: str | None) -> dict[str, Any]:
    """Raises what comes of reading something else than a message."""
    properties, headers = message["properties"], {**message["headers"]}
    # Compressed once, it may be a thousand times as large; nothing of Celery's is, here.
    headers.pop("compression", None)
    body, encoding = message["body"], properties["body_encoding"]
    if (message["content-type"], message["content-encoding"]) != _ENCODED or not isinstance(body, str):
        raise ValueError("another encoding")
    # A delivery's content is looked at once more (workers/broker/consumer.py); other messages, which are kombu's, are
    # not.
    if encoding == _KOMBUS:
        content = binascii.a2b_base64(body, strict_mode=True)
        if not queue and not isinstance(orjson.loads(content), list | dict):
            raise TypeError("a message is a list or an object")
    elif encoding is not None or not queue:
        raise ValueError("another encoding")
    exchange, routing_key = properties["delivery_info"]["exchange"], properties["delivery_info"]["routing_key"]
    if not isinstance(exchange, str) or not isinstance(routing_key, str | None):
        raise TypeError("no such route")
    return {
        "content-type": CONTENT_TYPE,
        "content-encoding": CONTENT_ENCODING,
        "body": body,
        "headers": headers,
        "properties": {
            "body_encoding": encoding,
            "delivery_tag": str(next(_tags)),
            "delivery_info": {"exchange": "" if queue else exchange, "routing_key": queue or routing_key},
            "priority": 0,
        },
    }


def _kind_of(queue: str) -> StepKind:
    return kind_of(queue_in_broker(queue) or queue)


def _kind(queue: str) -> str:
    """A name for the log: queues of Celery's own have names with ids, or any other name."""
    return queue if queue_in_broker(queue) is not None else "a queue of Celery's"


def _is_celerys(queue: str) -> bool:
    return queue.startswith("celeryev.") or queue.endswith(".pidbox")


def _refuse(_: object) -> bytes:
    raise ValueError("no message of Palaver's is compressed")


for method in compression.encoders():
    # Over RabbitMQ kombu inflates a body before anybody is asked.
    compression.register(_refuse, _refuse, method)


class ConsumerChannel(deliveries.Channel):
    """The publisher's channel, careful with what it reads."""

    # Of kombu, with types that fit only while no question is out: the connection that one is out on, and since when.
    _in_poll: Any
    _brpop_sent_at: Any
    _ask_again_at = float("-inf")

    def _brpop_start(self, timeout: int | None = None) -> None:
        """Ask for deliveries; kombu asks for one, and calls it by that command's name."""
        keys = self._queue_cycle.consume(len(self.active_queues))
        if not keys or monotonic() < self._ask_again_at:
            return
        connection = self._in_poll = self.client.connection
        self._brpop_sent_at = monotonic()
        seconds = timeout or self.brpop_timeout
        connection.send_command(_TAKE, seconds, len(keys), *keys, "RIGHT", "COUNT", self._at_once())

    def _brpop_read(self, **_: Any) -> bool:
        """Hand over what has come.

        Raises:
            Empty: nothing has, or nothing that can be let in, or the broker refuses.
        """
        connection = self.client.connection
        try:
            answer = self.client.parse_response(connection, _TAKE)
        except self.connection_errors:
            # It connects again before it asks again.
            connection.disconnect()
            raise
        except self.ResponseError as error:
            if any(refusal in str(error) for refusal in _REFUSALS):
                self._ask_again_at = monotonic() + _REFUSED_FOR
                log.error("the broker refuses %s (%s): %s", _TAKE, error, _NEEDS)
                raise Empty from None
            raise
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()  # type: ignore[no-untyped-call]
        name, raws = answer or (b"", ())
        queue = name.decode(errors="replace")
        self._let_others_come(queue)
        messages = [message for raw in raws if (message := let_in(raw, queue)) is not None]
        if not messages:
            raise Empty
        for message in messages:
            self.connection._deliver(message, queue)
        return True

    def _let_others_come(self, queue: str) -> None:
        """Read the queues of other kinds of steps before those of this one's: in the same order always, one kind that
        has something at each moment would keep the others from a worker of several."""
        kind, cycle = _kind_of(queue), self._queue_cycle
        cycle.update(sorted(cycle.items, key=lambda name: _kind_of(name) is kind))

    def _at_once(self) -> int:
        """Return how many deliveries to ask for, at most: there is room for them, and other workers get their share."""
        free = self.qos.can_consume_max_estimate() or 1
        share: int = self.qos.prefetch_count // _SHARE
        return max(1, min(free, share, _BATCH))

    def _handle_message(self, client: Any, response: Any) -> Any:
        """Read a message from pub/sub: remote control, and events for Flower."""
        read = super()._handle_message(client, response)  # type: ignore[no-untyped-call]
        if isinstance(read["data"], bytes) and read["data"]:
            message = let_in(read["data"], read["channel"].decode(errors="replace"))
            read["data"] = None if message is None else orjson.dumps(message)
        return read

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str, **kwargs: Any) -> None:
        """Publish what is for all who listen: mostly events, which cost less than as kombu writes them."""
        with self.conn_or_acquire() as client:
            for topic in self._get_publish_topics(exchange, routing_key):  # type: ignore[no-untyped-call]
                client.publish(topic, orjson.dumps(message))

    def get_table(self, exchange: str) -> list[tuple[str, ...]]:
        """Return the queues that messages to an exchange go to. The table is in Redis: queues of others that it names
        are left out."""
        rows = super().get_table(exchange)  # type: ignore[no-untyped-call]
        return [row for row in rows if len(row) == 3 and _is_celerys(row[2])]

    def _refresh_binding(self, keys: list[str], args: list[Any], client: Any) -> None:
        """Say where answers go, in place of kombu's script: who may run scripts can stop a Redis with one, and Flower's
        user is to look only. What a Flower that was killed leaves there is a line of a set."""
        client.sadd(keys[0], args[0])

    def sweep_bindings(self, limit: int = 100) -> int:
        """Nothing to do: without the script there are no deadlines."""
        return 0


class ConsumerTransport(redis.Transport):
    """kombu's Redis transport with the channel above."""

    Channel = ConsumerChannel
