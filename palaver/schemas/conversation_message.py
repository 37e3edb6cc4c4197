"""A message as a conversation has it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel

from palaver.schemas.models import Message, Usage


class ConversationMessage(Message):
    """A message, and where it stands in the conversation's log."""

    position: int
    run_id: str | None
    """None: the user's words, that came without a run."""
    at: datetime
    nudge: bool = False
    """True for a user message of Palaver's own: it tells the model that it repeats itself."""
    steer: bool = False
    """A user message that came into a run that was going on."""
    withdrawn: bool = False
    """True if it was rolled back with its run, or is behind the place that somebody went back to: models do not see it
    any more."""
    opaque: dict[str, Any] | None = None
    """The fields that its provider wants back unchanged, as `origin` and `fields`; null unless the request says
    `include=opaque`."""


class AppendedMessages(BaseModel):
    """The user's words that a conversation took without a run of their own."""

    position: int | None
    """The position of the last one in the log; None if they went into a run."""
    run_id: str | None
    """The run that was active: its next model call sees them. If it is being cancelled, they come behind it."""


class Asked(BaseModel):
    """A model's answer to a question beside a conversation."""

    answer: str
    usage: Usage
    """The usage of the answer: no run of the conversation counts it."""
