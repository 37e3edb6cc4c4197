"""The changes of a run as one client is shown it: what `RunView` tells, and dialects have rows for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args

from palaver.late import dataclass


class ShownPart(NamedTuple):
    """A text that grows: ``text`` or ``reasoning`` of a model step. One step has one of them at a time."""

    kind: str
    step: str
    attempt: int | None
    """The attempt that it is of; None if it comes with its message."""


@dataclass(slots=True, eq=False)
class ShownCall:
    """A call of a tool that the model has made."""

    step: str
    """The model's."""
    id: str
    tool: str
    arguments: str
    again: bool
    """True if the run had a call of this id before: providers may give one again in a later step."""
    denied: bool = False
    """True if it was refused."""


class StepBegun(NamedTuple):
    """A model step begins, or is come to."""

    step: str


class StepEnded(NamedTuple):
    """Nothing more comes of a model step."""

    step: str


class PartOpened(NamedTuple):
    """More of a text may come from here on."""

    part: ShownPart


class PartGrown(NamedTuple):
    """More of the text that is open."""

    part: ShownPart
    text: str


class PartClosed(NamedTuple):
    """The text that was open is whole, or broken off."""

    part: ShownPart


class TakenBack(NamedTuple):
    """The text that was shown of a step is not so: it is forgotten."""

    open: ShownPart | None
    """The text that was open. It is not closed otherwise."""


class MessageTold(NamedTuple):
    """The message of a model step is in the log; its text was shown."""

    data: Mapping[str, Any]
    """The payload of the event: the message, and what is said of its calls."""


class SteerTold(NamedTuple):
    """The user has said something while the run was going on: told of between two steps."""

    seq: int
    message: Mapping[str, Any]


class CallTold(NamedTuple):
    """The model has made a call."""

    call: ShownCall


class CallProgressed(NamedTuple):
    """A call says how far it is."""

    call: ShownCall
    text: str
    fraction: float | None


class CallReturned(NamedTuple):
    """A call has its result."""

    call: ShownCall
    message: Mapping[str, Any]


class ActionAsked(NamedTuple):
    """A call waits for an approval, for the client's output, or for an answer to a question."""

    action: Mapping[str, Any]
    call: ShownCall


class ActionSettled(NamedTuple):
    """Such a call waits no more; ``approved`` if it is carried out now."""

    asked: ActionAsked
    approved: bool
    data: Mapping[str, Any]


class AskedBelow(NamedTuple):
    """A call of a run below waits so."""

    data: Mapping[str, Any]


class ResolvedBelow(NamedTuple):
    """Such a call of a run below waits no more."""

    data: Mapping[str, Any]


class StatusMoved(NamedTuple):
    """The status of the run is another one, or the reason why it waits."""

    kind: str
    """That of the event that says it."""
    data: Mapping[str, Any]


class AttemptFailed(NamedTuple):
    """An attempt of a model step has failed, or its worker is lost: the next one begins anew."""

    step: str


class ActionNeeded(NamedTuple):
    """Nothing of the run goes on any more before an action."""


class RunSuspended(NamedTuple):
    """The stream ends here, as an action is needed: the answer brings the rest."""


class StreamLost(NamedTuple):
    """The stream ends here, as the server has lost events that were shown."""


class RunEnded(NamedTuple):
    """The run has ended."""

    data: Mapping[str, Any]


Change = (
    StepBegun
    | StepEnded
    | PartOpened
    | PartGrown
    | PartClosed
    | TakenBack
    | MessageTold
    | SteerTold
    | CallTold
    | CallProgressed
    | CallReturned
    | ActionAsked
    | ActionSettled
    | AskedBelow
    | ResolvedBelow
    | StatusMoved
    | AttemptFailed
    | ActionNeeded
    | RunSuspended
    | StreamLost
    | RunEnded
)
CHANGES: Final[tuple[type[Change], ...]] = get_args(Change)
"""All of them."""
