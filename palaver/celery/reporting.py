"""Reports of a Celery worker about its tasks that are calls of tools."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any, Final

from celery import Celery, signals

from .reports import BRIEFLY, ENDS, OF_US, Reports, State, error_facts, reports_over, result_facts

log = logging.getLogger("palaver.celery")

_PAUSES: Final = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between two tries to report: a broker is back in that time, or was restarted for longer."""


def report(app: Celery, *, redis: str | None = None) -> None:
    """Have the workers of ``app`` report on tasks that Palaver publishes as calls of tools, and on no others. One line
    beside the application::

        app = Celery("shop", broker="redis://…")
        palaver.celery.report(app)

    Reports go to the application's broker. Where that is no Redis, ``redis`` is the address of one, which the table of
    the application in Palaver's file of sources names, too.
    """
    reporter = _Reporter(getattr(app, "_get_current_object", lambda: app)(), redis)
    for signal, receive in (
        (signals.task_prerun, reporter.started),
        (signals.task_retry, reporter.retried),
        (signals.task_success, reporter.succeeded),
        (signals.task_failure, reporter.failed),
        (signals.task_revoked, reporter.revoked),
        (signals.task_unknown, reporter.unknown),
    ):
        signal.connect(receive, weak=False, dispatch_uid=f"palaver.{id(reporter.app)}.{receive.__name__}")


class _Reporter:
    def __init__(self, app: Celery, redis: str | None) -> None:
        self.app = app
        self._redis = redis
        self._lock = threading.Lock()
        self._opened: tuple[int, Any, Reports] | None = None
        """The process, its connection and the reports there: a child does not use what its parent has opened."""

    def started(self, sender: Any = None, task_id: str = "", task: Any = None, **_: Any) -> None:
        request = task.request
        facts = {"worker": request.hostname, "retries": request.retries, "late": bool(task.acks_late)}
        self._report(sender, task_id, "started", **facts)

    def retried(self, sender: Any = None, request: Any = None, reason: Any = None, **_: Any) -> None:
        when = getattr(reason, "when", None)
        error = getattr(reason, "exc", None) or reason
        self._report(sender, request.id, "retry", when=str(when) if when else None, **error_facts(error))

    def succeeded(self, sender: Any = None, result: Any = None, **_: Any) -> None:
        try:
            facts = result_facts(result)
        except Exception as error:  # whatever a method of the result raises
            facts = {"result": f"[the result cannot be written as JSON: {type(error).__name__}]"}
        self._report(sender, sender.request.id, "success", **facts)

    def failed(self, sender: Any = None, task_id: str = "", exception: Any = None, **_: Any) -> None:
        self._report(sender, task_id, "failure", **error_facts(exception))

    def revoked(
        self, sender: Any = None, request: Any = None, terminated: bool = False, expired: bool = False, **_: Any
    ) -> None:
        self._report(sender, request.id, "revoked", terminated=bool(terminated), expired=bool(expired))

    def unknown(self, sender: Any = None, id: str = "", name: str = "", **_: Any) -> None:
        self._report(sender, id, "failure", error="NotRegistered", message=f"no worker task is named {name:.200}")

    def _report(self, sender: Any, task_id: str, state: State, **facts: Any) -> None:
        if not str(task_id).startswith(OF_US) or getattr(sender, "app", None) is not self.app:
            return
        # Of what is still going on the report would come later than that of its end.
        for pause in (*(_PAUSES if state in ENDS else ()), None):
            try:
                self._reports().add(task_id, state, **facts)
                return
            except Exception as error:  # of the client of Redis, which this module does not know
                self._close()
                if pause is None:
                    log.error("task %s: its %s was not reported: %s", task_id, state, type(error).__name__)
                    return
                time.sleep(pause)

    def _reports(self) -> Reports:
        with self._lock:
            if self._opened is None or self._opened[0] != os.getpid():
                connection = self.app.connection_for_write(self._redis, transport_options=BRIEFLY)
                reports = reports_over(connection)
                if reports is None:
                    raise TypeError("palaver.celery.report(app, redis=…): the broker is no Redis, and none is named")
                self._opened = os.getpid(), connection, reports
            return self._opened[2]

    def _close(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            try:
                opened[1].release()
            except Exception:
                log.debug("a connection that was lost could not be closed")
