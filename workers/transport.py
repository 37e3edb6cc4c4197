"""How the worker reads a Redis broker: kombu's own transport, minus what a queue of hints has no use for.

Importing this module makes it kombu's transport for redis:// and rediss:// URLs in this process; other
brokers keep theirs. It leans on `Channel.do_restore` and `Channel.conn_or_acquire` of kombu 5.7, held by
tests/process/test_pool.py, and leaves `sep` alone: a list's name is cut there when a message arrives, so that
`.` or `:` would read `model.recovered` as `model`; the default, two control characters, is safe.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from kombu.transport import TRANSPORT_ALIASES, redis

from palaver.deliveries import transport_options


def broker_settings(url: str) -> dict[str, Any]:
    """Celery settings for the broker at `url`.

    rediss:// verifies the server's certificate, which kombu's default does not, unless the URL has its own
    `ssl_cert_reqs`.
    """
    settings: dict[str, Any] = {"broker_url": url, "broker_transport_options": transport_options(url)}
    if urlsplit(url).scheme == "rediss":
        settings["broker_use_ssl"] = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    return settings


def consume_recovered_first(instance: Any, **_: Any) -> None:
    """Receiver for Celery's `celeryd_after_setup`: each queue Q it reads comes after Q.recovered.

    Redis reads them in this order, strictly (`queue_order_strategy`); RabbitMQ reads both alike.
    """
    queues = instance.app.amqp.queues
    asked = [name for name in queues.consume_from if not name.endswith(".recovered")]
    queues.select([name for queue in asked for name in (f"{queue}.recovered", queue)])


class Channel(redis.Channel):
    """A channel that never puts back what was delivered, and keeps one client for its commands.

    A lost connection would otherwise queue steps that still run a second time, or, without a record of them,
    dump their payloads to a file. A client for each command, as kombu makes them, costs 0.09 ms.
    """

    do_restore = False
    _commands: Any = None

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """The given client or this channel's own, safe to share: each command takes a pooled connection."""
        if client is None:
            # A fork and a close drop the pool, and with it the client.
            if self._commands is None or self._commands.connection_pool is not self.pool:
                self._commands = self._create_client()  # type: ignore[no-untyped-call]
            client = self._commands
        yield client


class Transport(redis.Transport):
    """kombu's Redis transport with the channel above."""

    Channel = Channel


TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), f"{__name__}:{Transport.__name__}"))
