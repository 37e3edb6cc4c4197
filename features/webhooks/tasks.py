"""One attempt that is a task of a Celery application: it is published to that application's broker."""

from __future__ import annotations

import asyncio
from typing import Final

import orjson

from palaver.celery.reports import BRIEFLY
from palaver.late import dataclass
from workers.own_celery import OwnCelery

from .outcomes import ReceiverAnswer
from .terms import TIMEOUT

_PUBLISHED: Final = 202


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """A task that is to be published."""

    task: str
    queue: str
    task_id: str
    """The same for each attempt."""
    body: bytes
    """JSON: the one argument."""


class TaskSender:
    """Sends to brokers of others, each attempt over a connection of its own."""

    async def send(self, broker: str, order: TaskOrder) -> ReceiverAnswer:
        """Publish a task, in 15 seconds at most. An attempt that is broken off may have been published: the task comes
        twice then, with one id."""
        try:
            async with asyncio.timeout(TIMEOUT):
                await asyncio.to_thread(_publish, broker, order)
        except TimeoutError:
            return ReceiverAnswer(None, "timeout")
        except Exception:  # of the client of a broker, of which there are several
            return ReceiverAnswer(None, "connection")
        return ReceiverAnswer(_PUBLISHED)


def _publish(broker: str, order: TaskOrder) -> None:
    settings = {"broker_url": broker, "task_serializer": "json"}
    app = OwnCelery("palaver.webhooks", settings, set_as_current=False)
    with app.connection_for_write(transport_options=BRIEFLY) as connection:
        app.send_task(
            order.task,
            args=[orjson.loads(order.body)],
            task_id=order.task_id,
            queue=order.queue,
            connection=connection,
            retry=False,
            ignore_result=True,
        )
