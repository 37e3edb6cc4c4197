"""Runs that went on when the store was lost with them.

The archive has what was archived of them while they went on. They end there as runs of a worker that is lost do: each
open call gets a result that says so, and their conversation rests. So it is read, and goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import orjson

from palaver.errors import UNREADABLE, CorruptRecord, ErrorClass, Failure
from palaver.errors.sentences import Sentence
from palaver.events import EventKind
from palaver.store.reading.records import USAGE_FIELDS
from palaver.vocabulary.lifecycle import RunStatus, StopReason

from .errors import ArchiveOvertaken
from .records import ArchivedConversation, ArchivedEntry, ArchivedRun, goes_on

if TYPE_CHECKING:
    from .database import Database

LOST: Final = Failure.of(
    ErrorClass.STORAGE,
    "The store lost this run while it went on. What is here was archived before that.",
    code="run_lost",
    user_action="retry",
)
_INTERRUPTED: Final = Failure.of(ErrorClass.TOOL_INTERRUPTED, Sentence.ENDED_BEGUN % StopReason.ERROR)
_OF_GOING_ON: Final = frozenset({"waiting", "actions", "open", "pausing", "steer", "asked"})
"""Fields of a run that none has which has ended."""
_OF_UNFINISHED: Final = frozenset({"active", "queued", "said", "unfinished"})
"""Fields of a conversation that none has which rests."""
_PAGE: Final = 200


async def end_lost(database: Database, conversation_id: str, now: int) -> bool:
    """End in the archive, at a time (ms), what it has of a conversation that the store has lost; tell whether there was
    something to end. Raises CorruptRecord if its log is not as it was written."""
    since = await database.versions([conversation_id])
    fields = await database.record(conversation_id)
    if fields is None or not goes_on(fields):
        return False
    log, after = _Log(), 0
    while page := await database.entries(conversation_id, after, _PAGE):
        after = page[-1].position
        try:
            for entry in page:
                log.take(entry)
        except UNREADABLE as error:
            raise CorruptRecord(f"the log of {conversation_id}") from error
    runs = _in_order(fields, {run.id: run for run in await database.unfinished_runs(conversation_id)})
    # Another process that does the same was first.
    with suppress(ArchiveOvertaken):
        await database.write([_ended(conversation_id, fields, log, runs, now)], since)
    return True


class _Log:
    """What is open at the end of a log."""

    def __init__(self) -> None:
        self.calls: dict[tuple[str, str], tuple[str, str]] = {}
        """By run and id of the call: its step, and the name of its tool."""
        self.actions: dict[tuple[str, str], str] = {}
        """By run and id of the action: the id of its call."""
        self.numbers: dict[str, int] = {}
        """The number of each run's last event."""

    def take(self, entry: ArchivedEntry) -> None:
        """The next entry."""
        run, kind = entry.fields["run"], entry.fields["type"]
        self.numbers[run] = int(entry.fields["seq"])
        data = orjson.loads(entry.fields["data"])
        if kind == EventKind.MESSAGE_CREATED:
            for call in data["message"].get("tool_calls") or ():
                self.calls[run, call["id"]] = (f"{data['step']}/{call['id']}", call["name"])
        elif kind == EventKind.TOOL_FINISHED:
            self.calls.pop((run, data["message"]["call_id"]), None)
        elif kind == EventKind.ACTION_REQUIRED:
            self.actions[run, data["action"]["id"]] = data["action"]["call_id"]
        elif kind == EventKind.ACTION_RESOLVED:
            self.actions.pop((run, data["action_id"]), None)


def _in_order(fields: Mapping[str, str], runs: Mapping[str, ArchivedRun]) -> list[ArchivedRun]:
    """Those runs in the order of their turns."""
    turns = [fields.get("active", ""), *fields.get("queued", "").split()]
    return [runs[each] for each in dict.fromkeys([*turns, *sorted(runs)]) if each in runs]


def _ended(
    conversation_id: str, fields: Mapping[str, str], log: _Log, runs: list[ArchivedRun], now: int
) -> ArchivedConversation:
    """The conversation at rest, with the end of its log."""
    after = int(fields.get("entries", 0))
    said = [*_sealed(log), *_last_words(runs)]
    entries, numbers = list[ArchivedEntry](), {**log.numbers}
    numbers |= {run.id: max(numbers.get(run.id, 0), int(run.fields.get("events", 0))) for run in runs}
    for position, (run_id, kind, data) in enumerate(said, after + 1):
        numbers[run_id] = numbers.get(run_id, 0) + 1
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        own = {"type": str(kind), "at": str(now), "run": run_id, "seq": str(numbers[run_id]), "data": text}
        entries.append(ArchivedEntry(position, own))
    end = {
        "status": RunStatus.FAILED.value,
        "stop_reason": StopReason.ERROR.value,
        "ended_at": str(now),
        "error": json.dumps(LOST.to_error(step=None, attempt=None)),
    }
    ended = [
        ArchivedRun(run.id, {**_without(run.fields, _OF_GOING_ON), **end, "events": str(numbers[run.id])})
        for run in runs
    ]
    rests = _without(fields, _OF_UNFINISHED)
    for run in runs:
        for name in USAGE_FIELDS:
            if name in run.fields:
                rests[name] = "1" if name == "unpriced" else str(int(rests.get(name, 0)) + int(run.fields[name]))
        outcome = {"run_id": run.id, "status": end["status"], "stop_reason": end["stop_reason"]}
        rests["last_outcome"] = json.dumps(outcome)
    rests["bytes"] = str(int(rests.get("bytes", 0)) + sum(len(entry.fields["data"].encode()) for entry in entries))
    rests |= {"entries": str(after + len(entries)), "updated_at": str(now)}
    return ArchivedConversation(conversation_id, rests, entries, ended, after)


_Said = tuple[str, EventKind, dict[str, Any]]
"""The run, the kind and the data of an entry that is to be written."""


def _sealed(log: _Log) -> Iterator[_Said]:
    """Yield what closes the calls that are open."""
    for (run, action_id), call_id in log.actions.items():
        yield (
            run,
            EventKind.ACTION_RESOLVED,
            {"action_id": action_id, "call_id": call_id, "decision": "cancelled"},
        )
    for (run, call_id), (step, tool) in log.calls.items():
        content = _INTERRUPTED.message
        message = {"role": "tool", "call_id": call_id, "name": tool, "content": content, "is_error": True}
        error = _INTERRUPTED.to_error(step=step, attempt=None)
        yield run, EventKind.TOOL_FINISHED, {"step": step, "message": message, "error": error}


def _last_words(runs: list[ArchivedRun]) -> Iterator[_Said]:
    """Yield what users have said into runs, and the ends of these."""
    for run in runs:
        if "entered" in run.fields:
            for message in orjson.loads(run.fields.get("steer", "[]")):
                yield run.id, EventKind.MESSAGE_CREATED, {"steer": True, "message": orjson.loads(message)}
        failed = {"status": RunStatus.FAILED, "stop_reason": StopReason.ERROR}
        yield run.id, EventKind.RUN_FINISHED, {**failed, "error": LOST.to_error(step=None, attempt=None)}


def _without(fields: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if name not in names}
