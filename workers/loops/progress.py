"""Tells watchers of a worker, from outside, that it makes progress: a probe that looks at a file, and systemd.

A worker makes progress while its consumer's thread, if it is connected to the broker, goes round, and while its pool
does; and not while deliveries wait that it has room for and does not take (`workers/broker/taking.py`). An outage of
Redis or of the broker is none of that: starting the worker again would cost its steps, and bring nothing back.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import suppress
from time import monotonic, sleep
from typing import Any, Final

from celery import bootsteps
from celery.worker.consumer.tasks import Tasks

from palaver.config.settings import settings

from ..broker.taking import Look, Taking

log = logging.getLogger("palaver.workers.loops.progress")

_EVERY: Final = 5.0
"""Seconds between two reports of progress: docs/reference/settings.md has the number, too."""
_PATIENCE: Final = 30.0
"""Seconds that the consumer may take for one thing: three times as long as a server that vanished keeps it waiting."""
_UNTAKEN: Final = 60.0
"""Seconds for which nothing is taken though deliveries wait: longer than a child has to start."""


class Progress(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery is untyped
    """A step of Celery's consumer, begun with each connection. Progress is first reported when the worker consumes."""

    requires = (Tasks,)

    def __init__(self, consumer: Any, **_: Any) -> None:
        super().__init__(consumer)
        self._file = settings().progress_file
        self._notify = os.environ.get("NOTIFY_SOCKET")
        self._timer: Any = None
        self._turned: float | None = None
        """The time at which the consumer's thread last went round; None while there is no connection."""
        # Now: where tools run on the loop, they must not see what it reads of the environment, and nothing else does.
        look = Look(consumer) if self.include_if(consumer) else None
        self._thread = threading.Thread(target=self._tell_for_ever, args=(consumer, look), name="progress", daemon=True)
        if self._file is not None:
            # An earlier process may have left it.
            self._file.unlink(missing_ok=True)

    def include_if(self, parent: Any) -> bool:
        """Only where it is looked at."""
        return bool(settings().progress_file or os.environ.get("NOTIFY_SOCKET"))

    def start(self, consumer: Any) -> None:
        """The consumer is connected and consumes."""
        self._turn()
        self._timer = consumer.timer.call_repeatedly(_EVERY, self._turn)
        if self._thread.ident is None:
            self._thread.start()

    def stop(self, consumer: Any) -> None:
        """It is not any more."""
        self._turned = None
        if self._timer is not None:
            self._timer.cancel()

    def _turn(self) -> None:
        self._turned = monotonic()

    def _tell_for_ever(self, consumer: Any, look: Look) -> None:
        taking = Taking(look.waiting, _UNTAKEN)
        while True:
            turned = self._turned
            turns = turned is None or monotonic() - turned < _PATIENCE
            if not taking.stuck(look.seen()) and turns:
                # A pool whose loop hangs never comes to it.
                consumer.pool.call_soon(self._tell)
            sleep(_EVERY)

    def _tell(self) -> None:
        if self._file is not None:
            try:
                self._file.touch()
            except OSError as error:
                log.warning("PALAVER_PROGRESS_FILE: cannot touch %s: %s", self._file, error.strerror)
        if self._notify:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
                systemd.sendto(b"READY=1\nWATCHDOG=1", self._notify.replace("@", "\0", 1))
