"""Events as ``palaver.events`` declares them."""

from __future__ import annotations

from pydantic import ValidationError

from palaver.events import EVENTS, BaseEvent, EventKind
from palaver.store.reading.events import StoredEvent

DURABLE = frozenset(kind for kind in EventKind if kind.durable)


def declared(event: StoredEvent) -> BaseEvent:
    """The event as its class in ``palaver.events`` has it.

    Raises:
        AssertionError: there is no such kind, or it has other fields.
    """
    assert event.type in EVENTS, f"no class of palaver.events is for {event.type}"
    try:
        return EVENTS[event.type].model_validate_json(event.to_json(), extra="forbid")
    except ValidationError as error:
        raise AssertionError(f"an event of {event.run_id} is not as it is declared: {event.to_json()!r}") from error
