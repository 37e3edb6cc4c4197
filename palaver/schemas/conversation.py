"""Conversations as they are on the wire: the resource, its messages, and the bodies that begin and change it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from operator import not_
from typing import Annotated, Any, Literal, TypedDict

from pydantic import Field

from palaver.schemas.fields import AgentReference, AtMost, DataModel, Metadata, Tags
from palaver.schemas.models import AgentSpec, Message, NewSecrets, Usage, WithAgent
from palaver.vocabulary.lifecycle import RunStatus, StopReason

ConversationStatus = RunStatus | Literal["idle"]
"""The status of its active run, else of the run that ended last; ``idle`` if there is neither."""
Title = Annotated[str, AtMost("title"), Field(min_length=1)]


class Outcome(DataModel):
    """The end of a conversation's newest finished run."""

    run_id: str
    status: RunStatus
    stop_reason: StopReason


class Conversation(DataModel):
    """An append-only log with one agent spec at a time."""

    id: str
    title: str | None = None
    """The first words of its first message, if it was given no title."""
    status: ConversationStatus = "idle"
    agent: AgentSpec | None = None
    metadata: dict[str, str] = Field(default={})
    tags: tuple[str, ...] = ()
    created_at: datetime
    updated_at: datetime
    """The time of its last message or other happening, or of its last change."""
    revision: int = 0
    """The number of its changes by a `PATCH`."""
    entries: int = 0
    """Log entries so far."""
    active_run: str | None = None
    queued_runs: tuple[str, ...] = ()
    last_outcome: Outcome | None = None
    usage: Usage = Usage()
    """The usage of all its runs, also of those that are deleted; a fork begins anew."""
    forked_from: str | None = None
    """The conversation whose log it began with."""
    forked_through: int | None = None
    """The position up to which."""
    archived: bool = Field(default=False, exclude_if=not_)
    """True if it has come from the archive, and nothing has happened in it since: it had left Redis. Absent if it has
    not."""

    @property
    def unfinished_runs(self) -> tuple[str, ...]:
        """Its runs that have not ended, in the order of their turns."""
        return self.queued_runs if self.active_run is None else (self.active_run, *self.queued_runs)

    @property
    def newest_run(self) -> str | None:
        """The run that was submitted to it last, as far as that is known; None if it has had none."""
        ended = None if self.last_outcome is None else self.last_outcome.run_id
        return self.unfinished_runs[-1] if self.unfinished_runs else ended


class ConversationMessage(Message):
    """A message, and where it stands in the conversation's log."""

    position: int
    run_id: str | None
    """None: the user's words, that came without a run."""
    at: datetime
    nudge: bool = False
    """A user message of Palaver's own: the model was told that it repeats itself."""
    steer: bool = False
    """A user message that came into a run that was going on."""
    withdrawn: bool = False
    """Rolled back with its run, or behind the place that the conversation went back to: models are not told of it any
    more."""
    opaque: dict[str, Any] | None = None
    """The parts that its provider wants back unchanged, as `origin` and `fields`; null unless the request says
    `include=opaque`."""


class AppendedMessages(DataModel):
    """The user's words that a conversation took without a run of their own."""

    position: int | None
    """The position of the last one in the log; None if they went into a run."""
    run_id: str | None
    """The run that was active: its next model call is told them. If it is being cancelled, they come behind it."""


class SideAnswer(DataModel):
    """The answer of a model to a question beside a conversation."""

    answer: str
    usage: Usage
    """The usage of the answer: no run of the conversation counts it."""


class ConversationCount(DataModel):
    """The number of conversations that fit."""

    count: int
    complete: bool
    """All of them were looked at; else there may be more."""


class NewConversation(WithAgent):
    """The body of ``POST /v1/conversations``."""

    id: Annotated[str, Field(max_length=64)] | None = None
    """A UUID, or an id as they are here, to know it by: if there is a conversation of that id, it is answered as it
    is. None for a new one."""
    agent: AgentSpec | AgentReference | None = None
    """A whole agent, or the name of one on the server. May come with the first run instead."""
    title: Title | None = None
    metadata: Metadata = Field(default={})
    tags: Tags = ()
    secrets: NewSecrets = Field(default={})
    """Secrets that it has, for tools, by name."""


class Fork(NewConversation):
    """The body of ``POST /v1/conversations/{id}/fork``. A field that is left out is as in the conversation that is
    forked."""

    through: Annotated[int, Field(ge=0)] | None = None
    """The position in its log up to which; None for all, but a turn with open calls."""


class ConversationPatch(WithAgent):
    """The body of ``PATCH /v1/conversations/{id}``. Each field of the body takes the place of the old value, whole; a
    field that is left out stays."""

    title: Title | None = None
    """Null takes it away."""
    metadata: Metadata = Field(default={})
    tags: Tags = ()
    agent: AgentSpec | AgentReference | None = None
    """The agent that answers from the next run on, whole or by its name; existing runs go on as they were. Null takes
    it away."""
    revision: Annotated[int, Field(ge=0)] | None = None
    """Change it only if it still has this one."""


ConversationOrder = Literal["created", "-created", "updated", "-updated"]
"""The order by the time when they were begun or when something last happened to them; with a minus the newest first."""


class ConversationFilter(TypedDict, total=False):
    """Conversations that fit all of these conditions. One that is left out, or None, lets every one through. Times
    count in milliseconds, and are part of what they limit."""

    title: str | None
    """A part of its title, whatever the case."""
    status: str | Collection[str] | None
    """One of several: a list, or a text with commas between them."""
    tag: str | None
    metadata: Mapping[str, str] | None
    """It has all of these entries."""
    created_after: datetime | None
    created_before: datetime | None
    updated_after: datetime | None
    updated_before: datetime | None
