"""The Celery app as workers and Flower share it: the broker, its queues, and how both are spoken to.

``palaver flower`` has no more than this: it does no steps, so it needs nothing of what does.
"""

from __future__ import annotations

from palaver.config.exits import refusing
from palaver.config.settings import settings
from palaver.delivery.deliveries import QUEUES
from palaver.vocabulary.step_kinds import KINDS, MODEL

from ..own_celery import OwnCelery
from .remote import Control
from .transport import Amqp, broker_settings

with refusing():
    _deliveries = broker_settings(settings().deliveries_url)

app = OwnCelery(
    "palaver",
    {
        **_deliveries,
        "task_queues": tuple(QUEUES.values()),
        "task_default_queue": MODEL.queue,
        "task_create_missing_queues": False,
        "task_routes": {kind.task: {"queue": kind.queue} for kind in KINDS},
        "accept_content": ["json"],
        "task_serializer": "json",
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
    },
    amqp=Amqp,
    control=Control,
)
