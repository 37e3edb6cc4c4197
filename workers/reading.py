"""What of the bytes that lie in a Redis broker is let in to kombu.

Whoever may write to the broker may write anything there, and kombu takes it on trust: text that is no JSON, a body that
inflates to gigabytes, a tag that two messages share (so that none of them counts) end the process that reads it or
fill its memory. So each message is taken apart before kombu sees it, and put together again from the few parts that one
of Celery's has. What cannot be is dropped: counted (`palaver.limits.exceeded`), and told of without its content.

It leans on `Channel._get_client`, `_handle_message`, `get_table` and `_refresh_binding` of kombu 5.7, held by
tests/process/test_hostile_broker.py and test_acl.py.
"""

from __future__ import annotations

import binascii
import logging
from collections import Counter
from itertools import count
from time import monotonic
from typing import Any, Final

import orjson
from kombu import compression
from kombu.transport import redis

from palaver import deliveries
from palaver.limits import beyond, most
from palaver.wire import CONTENT_ENCODING, CONTENT_TYPE

log = logging.getLogger("palaver.workers.reading")

_SAY_EVERY: Final = 10.0
"""Seconds between two lines about what was dropped: a flood of messages must not become one of lines."""
_ENCODED: Final = (CONTENT_TYPE, CONTENT_ENCODING, "base64")
_tags: Final = count(1)


class _Dropped:
    """Counts what was dropped, and says so now and then."""

    def __init__(self) -> None:
        self._unsaid: Counter[str] = Counter()
        self._said_at = float("-inf")

    def __call__(self, limit: str, where: str) -> None:
        """Something that came on `where` went beyond `limit`. Never raises; the line has no word of the content."""
        beyond(limit)
        self._unsaid[f"{where} ({limit})"] += 1
        if monotonic() - self._said_at >= _SAY_EVERY:
            told = ", ".join(f"{count} on {what}" for what, count in self._unsaid.items())
            log.warning("dropped messages that are none of Palaver's: %s", told)
            self._unsaid.clear()
            self._said_at = monotonic()


dropped = _Dropped()
"""Call it for each message of the broker that is left out."""


def let_in(raw: bytes, queue: str) -> bytes | None:
    """A message of `queue` as kombu may read it, with what is not known left out; None when it is dropped."""
    is_delivery = queue in deliveries.QUEUES
    limit = "delivery" if is_delivery else "control_message"
    if len(raw) > most(limit):
        dropped(limit, _kind(queue))
        return None
    try:
        return orjson.dumps(_anew(orjson.loads(raw), queue if is_delivery else None))
    except (AttributeError, KeyError, TypeError, ValueError):
        dropped("not_deliveries" if is_delivery else "not_control_messages", _kind(queue))
        return None


def _anew(message: Any, queue: str | None) -> dict[str, Any]:
    """Raises what comes of reading something else than a message."""
    told, headers = message["properties"], dict(message["headers"])
    # Compressed once, it may be a thousand times as large; nothing of Celery's is, here.
    headers.pop("compression", None)
    if (message["content-type"], message["content-encoding"], told["body_encoding"]) != _ENCODED:
        raise ValueError("another encoding")
    body = binascii.a2b_base64(message["body"], strict_mode=True)
    # What a delivery says is looked at once more (workers/consumer.py); what else there is, by nobody.
    if not queue and not isinstance(orjson.loads(body), list | dict):
        raise TypeError("a message is a list or an object")
    exchange, routing_key = told["delivery_info"]["exchange"], told["delivery_info"]["routing_key"]
    if not isinstance(exchange, str) or not isinstance(routing_key, str | None):
        raise TypeError("no such route")
    return {
        "content-type": CONTENT_TYPE,
        "content-encoding": CONTENT_ENCODING,
        "body": message["body"],
        "headers": headers,
        "properties": {
            "body_encoding": "base64",
            "delivery_tag": str(next(_tags)),
            "delivery_info": {"exchange": "" if queue else exchange, "routing_key": queue or routing_key},
            "priority": 0,
        },
    }


def _kind(queue: str) -> str:
    """A name for the log: queues of Celery's own have names with ids, or whatever somebody thought of."""
    return queue if queue in deliveries.QUEUES else "a queue of Celery's"


def _is_celerys(queue: str) -> bool:
    return queue.startswith("celeryev.") or queue.endswith(".pidbox")


def _refuse(_: object) -> bytes:
    raise ValueError("no message of Palaver's is compressed")


for method in compression.encoders():
    # Over RabbitMQ kombu inflates a body before anybody is asked.
    compression.register(_refuse, _refuse, method)

_Redis: Final[Any] = redis.redis.Redis  # type: ignore[attr-defined]  # the client that kombu has chosen


class _Client(_Redis):  # type: ignore[misc]
    def parse_response(self, connection: Any, command_name: Any, **options: Any) -> Any:
        """The answer; for a BRPOP that brought what cannot be let in, as if nothing had come."""
        answer = super().parse_response(connection, command_name, **options)
        if command_name != "BRPOP" or not answer:
            return answer
        queue, raw = answer
        message = let_in(raw, queue.decode(errors="replace"))
        return None if message is None else (queue, message)


class Channel(deliveries.Channel):
    """The publisher's channel, careful with what it reads."""

    def _get_client(self) -> type[_Client]:
        return _Client

    def _handle_message(self, client: Any, response: Any) -> Any:
        """What came by pub/sub: remote control, and for Flower events."""
        read = super()._handle_message(client, response)  # type: ignore[no-untyped-call]
        if isinstance(read["data"], bytes) and read["data"]:
            read["data"] = let_in(read["data"], read["channel"].decode(errors="replace"))
        return read

    def get_table(self, exchange: str) -> list[tuple[str, ...]]:
        """Where messages to an exchange go. The table is in Redis: queues of others that it names are left out."""
        rows = super().get_table(exchange)  # type: ignore[no-untyped-call]
        return [row for row in rows if len(row) == 3 and _is_celerys(row[2])]

    def _refresh_binding(self, keys: list[str], args: list[Any], client: Any) -> None:
        """Say where answers go, in place of kombu's script: who may run scripts can stop a Redis with one, and Flower's
        user is to look only. What a Flower that was killed leaves there is a line of a set."""
        client.sadd(keys[0], args[0])

    def sweep_bindings(self, limit: int = 100) -> int:
        """Nothing to do: without the script there are no deadlines."""
        return 0


class Transport(redis.Transport):
    """kombu's Redis transport with the channel above."""

    Channel = Channel
