"""What goes on in a run and how it failed, in sentences for a person who chats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaver.errors import ErrorClass
from palaver.vocabulary.lifecycle import StopReason

from ..shown_run import status_in
from .chunks import Chunk
from .tables import ERRORS, STATUSES, WAITS


def status_chunk(kind: str, data: Mapping[str, Any]) -> Chunk:
    """Return what an event says about where the run stands."""
    status, why = status_in(kind, data)
    said = {"text": WAITS.get(why["reason"], "")} if why else {}
    return {"type": "data-palaver-status", "data": {"status": STATUSES[status], **said, **why}, "transient": True}


def failure_sentence(error: Mapping[str, Any] | None, stop_reason: str, run_id: str) -> str:
    """Return the sentence for a person, and what whoever runs the server looks for."""
    if error is None:
        said = "There was no time left for this." if stop_reason == StopReason.DEADLINE else ERRORS[ErrorClass.INTERNAL]
        return f"{said} ({stop_reason}, {run_id})"
    said = ERRORS.get(error["class"], ERRORS[ErrorClass.INTERNAL])
    return f"{said} ({error['class']}, {error['code']}, {run_id})"
