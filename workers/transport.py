"""How the worker reads its broker.

Importing this module makes the transport of the publisher kombu's transport for redis:// and rediss:// URLs in this
process; other brokers keep theirs. `sep` is left alone: a list's name is cut there when a message arrives, so that `.`
or `:` would read `model.recovered` as `model`; the default, two control characters, is safe.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import TRANSPORT_ALIASES

from palaver.deliveries import RECOVERED, Transport, has_priorities, kombu_url, tls_options, transport_options


def broker_settings(url: str) -> dict[str, Any]:
    """Celery settings for the broker at `url`.

    The options for TLS are in the URL too, but Flower reads them here only.
    """
    settings: dict[str, Any] = {"broker_url": kombu_url(url), "broker_transport_options": transport_options(url)}
    if tls := tls_options(url):
        settings["broker_use_ssl"] = tls
    return settings


def consume_recovered_first(instance: Any, **_: Any) -> None:
    """Receiver for Celery's `celeryd_after_setup`: each queue Q it reads comes after Q.recovered.

    Redis reads them in this order, strictly (`queue_order_strategy`); RabbitMQ has priorities within Q instead.
    """
    queues = instance.app.amqp.queues
    asked = [name for name in queues.consume_from if not name.endswith(RECOVERED)]
    if not has_priorities(instance.app.conf.broker_url):
        asked = [name for queue in asked for name in (queue + RECOVERED, queue)]
    queues.select(asked)


TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), f"{Transport.__module__}:{Transport.__name__}"))
