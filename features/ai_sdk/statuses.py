"""The state of a run, and the failure that ended it, in sentences for a person who chats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.kit.shown_run import failure_sentence, status_in

from .chunks import Chunk
from .tables import STATUSES, WAITS


def status_chunk(kind: str, data: Mapping[str, Any]) -> Chunk:
    """Return what an event says about where the run stands."""
    status, why = status_in(kind, data)
    said = {"text": WAITS.get(why["reason"], "")} if why else {}
    return {"type": "data-palaver-status", "data": {"status": STATUSES[status], **said, **why}, "transient": True}


def error_text(error: Mapping[str, Any] | None, stop_reason: str, run_id: str) -> str:
    """Return the sentence for a person, and what the operator of the server looks for."""
    cause = stop_reason if error is None else f"{error['class']}, {error['code']}"
    return f"{failure_sentence(error, stop_reason)} ({cause}, {run_id})"
