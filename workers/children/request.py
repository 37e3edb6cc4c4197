"""A worker's reports of a delivery: failures go to Flower without our own code, and the death of a child goes to the
store."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from billiard.exceptions import WorkerLostError
from celery.exceptions import Retry
from celery.worker.request import Request

from ..steps.outages import NotSettled
from ..steps.runtime import worker_id
from ..steps.step import StepFailed
from .child_leases import end_lease
from .prefork import why_ended

log = logging.getLogger("palaver.workers.children.request")


class StepRequest(Request):  # type: ignore[misc]  # Celery is untyped
    """A delivery. Flower shows a traceback only of what nobody foresaw: others would be of our own code."""

    _judged = ""

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Celery's own handling."""
        self._judged = _judged(_raised(exc_info))
        return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)

    def send_event(self, type: str, **fields: Any) -> None:
        """Tell who listens."""
        if self._judged and "exception" in fields:
            fields["exception"] = self._judged
            fields.pop("traceback", None)
        super().send_event(type, **fields)


class ChildRequest(StepRequest):
    """A delivery in a prefork worker. Without this, a dead child's lease would have to run out first."""

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Celery's own handling; and if the child is gone, its lease ends now."""
        result = super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
        if isinstance(_raised(exc_info), WorkerLostError) and self.worker_pid:
            run_id, conversation_id, step = self.args[:3]
            ending, worker = why_ended(self.worker_pid), worker_id(self.hostname, self.worker_pid)
            try:
                asyncio.run(end_lease(run_id, conversation_id, step, worker, ending))
            except Exception as away:
                log.warning("lease of %s/%s runs out by itself: %s", run_id, step, type(away).__name__)
        return result


def _judged(error: BaseException) -> str:
    """Describe the error with which a step ends if it is no surprise; empty if it is one."""
    match error:
        case Retry(exc=StepFailed() as failed, when=seconds):
            return f"{failed}; again in {seconds} s"
        case StepFailed() | NotSettled():
            return str(error)
    return ""


def _raised(exc_info: Any) -> BaseException:
    error: BaseException = exc_info.exception
    return error.exc if isinstance(error, ExceptionWithTraceback) else error
