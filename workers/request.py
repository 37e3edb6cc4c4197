"""How the tools worker's main process learns that a child died, and tells the store at once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from billiard.exceptions import WorkerLostError
from celery.worker.request import Request

from .child_leases import end_lease
from .prefork import why_ended
from .runtime import worker_id

log = logging.getLogger("palaver.workers.request")


class StepRequest(Request):  # type: ignore[misc]  # Celery is untyped
    """A delivery in a prefork worker. Without this, a dead child's lease would have to run out first."""

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Celery's own handling; and if the child is gone, its lease ends now."""
        result = super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
        error = exc_info.exception
        if isinstance(error, ExceptionWithTraceback):
            error = error.exc
        if isinstance(error, WorkerLostError) and self.worker_pid:
            run_id, conversation_id, step = self.args[:3]
            ending, worker = why_ended(self.worker_pid), worker_id(self.hostname, self.worker_pid)
            try:
                asyncio.run(end_lease(run_id, conversation_id, step, worker, ending))
            except Exception as away:
                log.warning("lease of %s/%s runs out by itself: %s", run_id, step, type(away).__name__)
        return result
