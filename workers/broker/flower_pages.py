"""Flower as `palaver flower` shows it: every queue, what became of a task in one column, and no question without an
answer."""

from __future__ import annotations

from typing import Any, Final

from flower.app import Flower
from flower.utils.broker import RedisBase
from flower.views import BaseHandler
from flower.views.tasks import TASK_COLUMNS, TasksDataTable
from tornado.options import options

from palaver.config.sentinels import by_sentinels
from palaver.config.settings import settings
from palaver.store.redis.pools import client_of

_AGAIN: Final = 0.5
"""Seconds between two looks whether a worker is there."""
_COUNTED: Final = 5.0
"""Seconds for an answer of the broker's."""


def prepare() -> None:
    """Change Flower for good, before it starts."""
    _list_every_queue()
    _ask_once_somebody_is_there()
    _name_the_columns()
    if by_sentinels(settings().deliveries_url):
        _follow_the_primary()
    options.format_task = reasoned


def reasoned(task: Any) -> Any:
    """The task with one sentence on how it ended, in place of a result or an exception: two columns of the page, of
    which one is empty, are wider than a screen."""
    task.result, task.exception = task.exception or (task.result or "").strip("'"), None
    return task


def _name_the_columns() -> None:
    """In the list of tasks, in words of Palaver. The sentence is in the column of exceptions there: Flower cuts what is
    in that of results behind some forty characters."""
    TASK_COLUMNS.update(name="Kind", args="Model or tool", uuid="Run : step : delivery", exception="Reason")
    format_task = TasksDataTable.format_task

    def with_reason(page: Any, row: tuple[str, Any]) -> tuple[str, Any]:
        task_id, task = format_task(page, row)
        task.exception = task.result
        return task_id, task

    TasksDataTable.format_task = with_reason


class _Followed(RedisBase):  # type: ignore[misc]  # Flower is untyped
    """A broker that Sentinels know. Flower's own class for it knows one of them, and neither its login nor the
    database."""

    def __init__(self, handler: BaseHandler) -> None:
        conf = handler.capp.conf
        super().__init__(conf.broker_url, broker_options=conf.broker_transport_options)
        self.redis = client_of(settings().deliveries_url, seconds=_COUNTED)


def _follow_the_primary() -> None:
    """Where Flower counts what waits in the queues."""
    BaseHandler.get_broker = lambda handler: _Followed(handler)


def _list_every_queue() -> None:
    """On Flower's page of the broker, from the start: it asks workers what they read, and some answer minutes late."""
    active_queues = BaseHandler.get_active_queue_names

    def names(handler: Any) -> list[str]:
        return sorted({*active_queues(handler), *(queue.name for queue in handler.capp.conf.task_queues or ())})

    BaseHandler.get_active_queue_names = names


def _ask_once_somebody_is_there() -> None:
    """Flower asks workers about themselves as it starts, with a warning a question that none has answered; and where
    all is started together, none is there yet."""
    ask = Flower.update_workers

    def begin(flower: Any) -> None:
        if flower.events.state.workers:
            ask(flower)
        else:
            flower.io_loop.call_later(_AGAIN, begin, flower)

    def first(flower: Any) -> None:
        Flower.update_workers = ask
        begin(flower)

    Flower.update_workers = first
