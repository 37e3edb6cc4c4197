"""A delivery in a worker with children: if its child is gone, the store hears of it at once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from billiard.exceptions import WorkerLostError

from ..steps.request import StepRequest, raised
from ..steps.runtime import worker_id
from .child_leases import end_lease
from .prefork import why_ended

log = logging.getLogger("palaver.workers.children.request")


class ChildRequest(StepRequest):
    """A delivery in a prefork worker. Without this, a dead child's lease would have to run out first."""

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Celery's own handling; and if the child is gone, its lease ends now."""
        result = super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
        if isinstance(raised(exc_info), WorkerLostError) and self.worker_pid:
            run_id, conversation_id, step = self.args[:3]
            ending, worker = why_ended(self.worker_pid), worker_id(self.hostname, self.worker_pid)
            try:
                asyncio.run(end_lease(run_id, conversation_id, step, worker, ending))
            except Exception as away:
                log.warning("lease of %s/%s runs out by itself: %s", run_id, step, type(away).__name__)
        return result
