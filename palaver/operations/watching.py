"""A run's events: as they come, or a page of them."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, Literal, TypeVar

from palaver.errors import Refused
from palaver.events import ON_REQUEST, EventKind
from palaver.late import dataclass
from palaver.operations.backend import Backend, within_deadline
from palaver.operations.waiting import admit_watcher
from palaver.schemas.models import Run
from palaver.store.reading.events import StoredEvent, about_stream
from palaver.store.reading.watchers import PassOn

E = TypeVar("E", bound=StoredEvent)
Batches = AsyncGenerator[Sequence[StoredEvent], None]
"""Events, in order, as they come; an empty batch means that there are none for a while. `stream.gap` stands for events
that are gone: token deltas, some time after the end of their run, but for one that has the text of each answer."""


Included = Literal["reasoning"] | None
"""The events of a run that are sent only on request: `reasoning.delta`."""
_QUIET: Final = 10.0
"""Seconds after which a watcher gets an empty batch although there are events, as none of them is sent to it."""


async def watch(
    backend: Backend, run_id: str, after: int, include: Included = None, pass_on: PassOn | None = None
) -> Batches | None:
    """Return the events behind ``after``, up to ``run.finished``; None if the run has ended and all of them were seen.

    Raises:
        UnknownRun: there is no such run (any more).
        Refused: ``invalid_cursor``, the run has not come so far.
        NoRoom: too many clients watch already.
    """
    run = await _run_at(backend, run_id, after)
    if run.status.terminal and after == run.last_event_id:
        return None
    admit_watcher(backend)
    return follow(backend, run.id, after, include, pass_on=pass_on)


def follow(
    backend: Backend,
    run_id: str,
    after: int = 0,
    include: Included = None,
    *,
    counted: bool = True,
    pass_on: PassOn | None = None,
) -> Batches:
    """Return the events of a run that is there, behind ``after``. Raises what reading them raises, except for trouble
    with the store, which passes. A watcher that is counted otherwise is not to be ``counted`` here, too. ``pass_on``
    takes deltas that can be sent at once; they do not come in a batch."""
    sent = Sent(after)
    straight = None if pass_on is None else partial(_pass_on, pass_on, sent, include)
    batches = with_gaps(backend.store.feeds.follow(run_id, after=after, counted=counted, pass_on=straight), sent)
    return batches if include else quietly(batches, sent)


class Sent:
    """The place of a watcher: the number of its last event, and the time at which something was sent to it."""

    __slots__ = ("at", "last")

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self.at = time.monotonic()


def _pass_on(pass_on: PassOn, sent: Sent, include: Included, event: StoredEvent) -> bool:
    if event.type in ON_REQUEST and include is None:
        # It is not to be sent; but that the watcher is there, now and then.
        passed = time.monotonic() - sent.at < _QUIET
    elif passed := pass_on(event):
        sent.at = time.monotonic()
    if passed:
        sent.last = event.seq
    return passed


async def quietly(
    batches: AsyncGenerator[Sequence[E], None], sent: Sent | None = None
) -> AsyncGenerator[Sequence[E], None]:
    """Yield batches without the events that are sent only on request."""
    sent = sent or Sent()
    async with aclosing(batches):
        async for events in batches:
            usual = _usual(events)
            if usual or not events or time.monotonic() - sent.at >= _QUIET:
                yield usual
                sent.at = time.monotonic()


def _usual(events: Sequence[E]) -> Sequence[E]:
    return [event for event in events if event.type not in ON_REQUEST]


async def with_gaps(batches: AsyncIterator[Sequence[StoredEvent]], sent: Sent) -> Batches:
    """Yield the events behind those that were sent, with a gap in the place of those that are missing between them."""
    async with aclosing(batches):  # type: ignore[type-var]
        async for events in batches:
            last = sent.last
            if events:
                sent.last = events[-1].seq
            if events and events[-1].seq != last + len(events):
                yield list(_gaps_and_events(events, last))
            else:
                yield events


def _gaps_and_events(events: Sequence[StoredEvent], last: int) -> Iterator[StoredEvent]:
    for event in events:
        if event.begins > last + 1:
            yield about_stream(EventKind.STREAM_GAP, event.run_id, last, event.at, last + 1, event.begins - 1)
        last = event.seq
        yield event


@dataclass(frozen=True, slots=True)
class EventSlice:
    """A slice of a run's events, in order."""

    events: Sequence[StoredEvent]
    reached: int
    """The number of the last event, shown or not, to go on behind."""
    more: bool
    """True if there are more by now."""


async def read_events(backend: Backend, run_id: str, after: int, limit: int, include: Included = None) -> EventSlice:
    """Return events behind ``after``, at most ``limit``.

    Raises:
        UnknownRun: there is no such run (any more).
        Refused: ``invalid_cursor``, the run has not come so far.
    """
    run = await _run_at(backend, run_id, after)
    events = await within_deadline(backend.store.feeds.page(run.id, after=after, limit=limit))
    reached = events[-1].seq if events else after
    return EventSlice(events if include else _usual(events), reached, more=bool(events) and reached < run.last_event_id)


async def _run_at(backend: Backend, run_id: str, after: int) -> Run:
    run = await backend.run(run_id)
    if after > run.last_event_id:
        raise Refused("invalid_cursor", f"The run has {run.last_event_id} events so far.", run_id=run.id)
    return run
