"""The vocabulary of events: one class a kind, and the page says what the classes do."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from palaver import events
from palaver.events import EVENTS, BaseEvent, EventKind, KnownEvent, read_event


@pytest.mark.parametrize("kind", EventKind)
def test_a_kind_has_a_class_that_is_named_like_it(kind: EventKind) -> None:
    name = "".join(part.title() for part in re.split(r"[._]", kind))
    assert EVENTS[kind] is getattr(events, name)
    assert name in events.__all__
    assert EVENTS[kind].__doc__


def test_the_union_has_every_class() -> None:
    union, _ = KnownEvent.__value__.__origin__, KnownEvent.__value__.__metadata__
    assert set(union.__args__) == set(EVENTS.values())


def test_what_is_no_event_is_refused() -> None:
    for text in ("", "[]", "null", '"text"', '{"type":"run.started"}', '{"type":1,"run_id":"r","seq":1,"at":"now"}'):
        with pytest.raises(ValidationError):
            read_event(text)


def test_every_event_has_what_all_have() -> None:
    assert all(issubclass(each, BaseEvent) for each in EVENTS.values())
