"""A worker's reports of a delivery: Flower shows failures without our own code."""

from __future__ import annotations

from typing import Any

from billiard.einfo import ExceptionWithTraceback
from celery.exceptions import Retry
from celery.worker.request import Request

from .outages import NotSettled
from .step import StepFailed


class StepRequest(Request):  # type: ignore[misc]  # Celery is untyped
    """A delivery. Flower shows a traceback only of unforeseen errors: others would be of our own code."""

    _judged = ""

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Celery's own handling."""
        self._judged = _judged(raised(exc_info))
        return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)

    def send_event(self, type: str, **fields: Any) -> None:
        """Tell who listens."""
        if self._judged and "exception" in fields:
            fields["exception"] = self._judged
            fields.pop("traceback", None)
        super().send_event(type, **fields)


def _judged(error: BaseException) -> str:
    """Describe the error with which a step ends if it is no surprise; empty if it is one."""
    match error:
        case Retry(exc=StepFailed() as failed, when=seconds):
            return f"{failed}; again in {seconds} s"
        case StepFailed() | NotSettled():
            return str(error)
    return ""


def raised(exc_info: Any) -> BaseException:
    error: BaseException = exc_info.exception
    return error.exc if isinstance(error, ExceptionWithTraceback) else error
