"""Sentences of the store's scripts for models and users: about calls that no tool answered, and steps that ended badly.

The scripts fill in ``%s`` and ``%d``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

IN_DOUBT: Final = " It may or may not have taken effect."
"""Behind a sentence about a call that had begun."""


class Sentence(StrEnum):
    """The sentences, each in one place."""

    CANCELLED_BEGUN = "Cancelled after it had begun." + IN_DOUBT
    CANCELLED_WITHOUT_OUTPUT = "The user cancelled the request before the client gave its output." + IN_DOUBT
    CANCELLED_UNBEGUN = "The user cancelled the request, so the tool call was denied."
    ENDED_BEGUN = "Interrupted: the run ended (%s)." + IN_DOUBT
    """With the run's stop reason, as the next two."""
    ENDED_WITHOUT_OUTPUT = "The run ended (%s) before the client gave its output." + IN_DOUBT
    ENDED_UNBEGUN = "Not started: the run ended (%s)."
    WORKER_STOPPED = "Interrupted: the worker that ran this call was stopped." + IN_DOUBT
    WORKER_LOST = "Interrupted: the worker that ran this call was lost." + IN_DOUBT
    LEASE_LOST = "Worker %s did not renew its lease: it has died, or lost its connection."
    BEHIND_THE_END = "Not started: %s was called before it, and that ends the run."
    """With the name of the tool that ends the run."""
    NO_WORKER = "For an hour no worker has taken from the queue %s."
    POISONOUS = "Step %s lost its worker %d times; it may be what ends them."
    TAKEN_OVER = "The client took this call over: what came of it is not known here."
    NO_OUTPUT = "The client gave no output within %s s."
    NO_DECISION = "Nobody decided in time, so the tool call was denied."
    DENIED = "The user denied this tool call."
    GO_ON = "[Automatic note] Your answer was stopped here. Go on."
    """To a model that is asked on where its answer was cut off."""
    NOTHING_LEFT = "Nothing is left that the run could answer: it was withdrawn. Send a message with the next one."
    INTERRUPTED_BY = "interrupted by %s"
    """The reason of a cancel, with the run that took the place."""
    PARENT_ENDED = "%s waits for it no more"
    """The reason of a cancel, with the run whose call began this one."""
