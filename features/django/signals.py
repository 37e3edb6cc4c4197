"""Signals of Django's, sent where a webhook arrives: each receiver gets ``run_id``, ``conversation_id``, ``status`` and
the whole ``event`` (docs/reference/webhooks.md).

An event may come twice, and what a receiver raises has it sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.dispatch import Signal

run_ended: Final = Signal()
"""A run has ended; ``status`` says how."""
action_required: Final = Signal()
"""A call of a run waits for an approval, or for a client's output: ``event["data"]["action"]``."""
_SENT: Final[Mapping[str, Signal]] = {
    "run.action_required": action_required,
    "run.cancelled": run_ended,
    "run.expired": run_ended,
    "run.failed": run_ended,
    "run.incomplete": run_ended,
    "run.succeeded": run_ended,
}


def tell(event: Mapping[str, Any]) -> None:
    """Send the signal of an event; other events have none. Raises what a receiver raises."""
    if (signal := _SENT.get(event["type"])) is not None:
        data = event["data"]
        facts = {name: data.get(name) for name in ("run_id", "conversation_id", "status")}
        signal.send(sender=None, event=event, **facts)
