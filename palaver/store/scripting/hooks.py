"""Hooks: the places in core scripts at which parts of features stand (ADR 0138).

A line ``-- hook: PLACE`` within a function of a Lua file is where they stand, in the order of the names of features;
where there is none, nothing is left of it. A part is a Lua file of its feature that is named in
`palaver.feature.Feature.hooks`. It sees all names of its place, needs what it says on a line ``-- needs: …`` of its
own, and never returns.

A part that asks for a field of what the place reads anyway says so on a line ``-- reads: …``. The names are put in
where the core writes ``hook.PLACE``, last in a list of names; ``-- hook: PLACE kept[3]`` says which value is the first
of them, and the part writes ``field.NAME``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from palaver.store.scripting.frames import Line

PLACES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "run_submitted": "A run is there: `args` are those of `Submit`. Reads fields of its tenant beside its caps: "
        "`caps('NAME')`. `show_to('FEATURE')` says that it is to see the run: others leave it alone (ADR 0138).",
        "run_retried": "A run that had ended is tried again by this one: `earlier` is the key, and `args.retried_from` "
        "the id of that one.",
        "run_ended": "A run has ended: `status`, `reason`, `failed`, `failure`, `class` of its error or false. Reads "
        "fields of the run.",
        "ended_run_changed": "The use of a child is counted with a run that has ended: `run` is its key, and "
        "`parent.run_id` its id; `conversation` is the key, and `kept[1]` the id of the one that it is of.",
        "run_deleted": "A run that had ended is gone, and what the log had of it.",
        "log_grows": "The log of a conversation is about to get so many `entries`, up to the position `ENTRIES`.",
        "conversation_idle": "A conversation has no unfinished run: it may go after the retention. Its id is "
        "`CONVERSATION`, here and at the next places.",
        "conversation_changed": "A conversation is changed beside its runs.",
        "conversation_deleted": "A conversation is gone, with its runs and its log.",
        "action_required": "A run waits for an `action`. Reads fields of the run.",
        "step_leased": "A worker gets a `step`, which is yet in the state that it was in, and is saved behind this.",
        "model_used": "The calls of the model under the lease that is over next `used` that.",
        "event_written": "An event of a run is written: its `kind` and its `data`, JSON.",
        "attempt_over": "An attempt of the `step` called `name` is over: `outcome`, and what its worker `told`, JSON.",
        "lease_over": "The lease of a `step` is over: `series` is its kind and outcome, `class` of a failure or nil.",
    }
)
"""Each place, with what it sees besides RUN, ID, CONV, OWNER and PREFIX, and what its parts may read."""
Hooks = Mapping[str, Sequence[str]]
"""The names of the Lua files of the parts at each place."""

_PLACE: Final = re.compile(r"^( *)-- hook: (\w+)(?: (\w+)\[(\d+)\])?$", re.MULTILINE)
_LISTED: Final = re.compile(r", hook\.(\w+)")
_READS: Final = re.compile(r"^-- reads: (.+)$", re.MULTILINE)
_FIELD: Final = re.compile(r"\bfield\.(\w+)")


def places(text: str) -> set[str]:
    """Return the places that a Lua file has, or lists fields for."""
    return {*(match[2] for match in _PLACE.finditer(text)), *_LISTED.findall(text)}


def parts_in(text: str, hooks: Hooks) -> Sequence[str]:
    """Return the parts that stand in a Lua file."""
    # Most files have none.
    places = _PLACE.finditer(text) if "-- hook: " in text else ()
    return [part for match in places for part in hooks.get(match[2], ())]


def with_parts(name: str, files: Mapping[str, str], hooks: Hooks) -> Iterator[tuple[str, Line]]:
    """Yield the lines of a Lua file with the parts that stand in it, each with its origin.

    Raises:
        LookupError: a part uses a field that it does not ask for, or that its place does not read.
    """
    for number, text in enumerate(files[name].splitlines(keepends=True), 1):
        # Most lines are none of a place.
        at = _PLACE.match(text) if "hook" in text else None
        if at:
            indent, place, table, first = at.groups()
            fields = _fields(place, files, hooks) if table else ()
            values = {field: f"{table}[{int(first) + each}]" for each, field in enumerate(fields)}
            for part in hooks.get(place, ()):
                for line, origin in _placed(part, files[part], values):
                    yield indent + line, origin
        else:
            if "hook" in text:
                text = _LISTED.sub(lambda found: _listed(_fields(found[1], files, hooks)), text)
            yield text, Line(f"{name}.lua", number)


def _placed(part: str, text: str, values: Mapping[str, str]) -> Iterator[tuple[str, Line]]:
    """Yield the lines of a part as a block: its locals are its own."""
    lines = text.splitlines(keepends=True)
    yield "do\n", Line(f"{part}.lua", 1)
    for number, line in enumerate(lines, 1):
        for field in _FIELD.findall(line):
            if field not in values:
                raise LookupError(f"{part}.lua:{number}: field.{field} is not read")
        yield _FIELD.sub(lambda found: values[found[1]], line), Line(f"{part}.lua", number)
    yield "end\n", Line(f"{part}.lua", len(lines))


def _fields(place: str, files: Mapping[str, str], hooks: Hooks) -> Sequence[str]:
    """Return the fields that parts at a place ask for, each once."""
    lines = (line for part in hooks.get(place, ()) for line in _READS.findall(files[part]))
    return list(dict.fromkeys(field for line in lines for field in line.split(", ")))


def _listed(fields: Sequence[str]) -> str:
    return "".join(f", '{field}'" for field in fields)
