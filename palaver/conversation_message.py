"""A message as a conversation has it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from palaver.models import Message


class ConversationMessage(Message):
    """A message, and where it stands in the conversation's log."""

    position: int
    run_id: str
    at: datetime
    nudge: bool = False
    """A user message of Palaver's own: the model was told that it repeats itself."""
    steer: bool = False
    """A user message that came into a run that was going on."""
    withdrawn: bool = False
    """Rolled back with its run: models are not told of it any more."""
    opaque: dict[str, Any] | None = None
    """What its provider wants back unchanged, as `origin` and `fields`; null unless the request says
    `include=opaque`."""
