"""The tables of docs/reference/events.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Final, get_args

from palaver.events.classes import EVENTS, BaseEvent
from palaver.events.kinds import EventKind, Kept

_HEADINGS: Final[Mapping[Kept, str]] = {
    Kept.LOG: "In the conversation's log and in the run's feed",
    Kept.FEED: "In the run's feed alone",
    Kept.NOWHERE: "About the stream itself",
}


def tables() -> str:
    """The page from its first heading on: a table for each place where events are kept."""
    lines: list[str] = []
    for kept, heading in _HEADINGS.items():
        lines += ["", f"## {heading}", "", "| type | says | carries |", "|---|---|---|"]
        lines += [_row(kind) for kind in EventKind if kind.kept is kept]
    return "\n".join(lines[1:]) + "\n"


def _row(kind: EventKind) -> str:
    kept = EVENTS[kind]
    return f"| `{kind}` | {' '.join((kept.__doc__ or '').split())} | {', '.join(_fields(kept))} |"


def _fields(kind: type[BaseEvent]) -> Iterator[str]:
    for name, field in kind.model_fields.items():
        if name not in BaseEvent.model_fields:
            yield f"`{name}`?" if NoneType in get_args(field.annotation) else f"`{name}`"


if __name__ == "__main__":
    print(tables(), end="")
