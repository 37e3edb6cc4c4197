"""What the checkers look at: the store's final state and the ledgers, gathered once, judged offline."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaver.schemas.conversation import Conversation
from palaver.schemas.models import Run
from palaver.store import Store
from palaver.store.reading.events import LogEntry, StoredEvent
from palaver.store.redis import keys

if TYPE_CHECKING:
    from tests.model_server import LedgerEntry

SLACK = 6.0
"""Seconds that a call may begin late: its worker was frozen, for twice a lease, or its request was under way."""


@dataclass(frozen=True)
class History:
    """A conversation and its runs, as the store has them."""

    conversation: Conversation
    entries: Sequence[LogEntry]
    runs: Mapping[str, Run]
    events: Mapping[str, Sequence[StoredEvent]]
    immortal: Sequence[str]
    """Its keys that have no time to live."""

    @property
    def ended(self) -> Iterator[tuple[Run, Sequence[StoredEvent]]]:
        """Its runs that are terminal, with their events."""
        return ((run, self.events[run_id]) for run_id, run in self.runs.items() if run.status.terminal)


@dataclass(frozen=True)
class Sent:
    """A submit that was answered, as the client that made it wrote down."""

    run_id: str
    text: str
    key: str | None = None


@dataclass(frozen=True)
class Evidence:
    """All there is. What a test did not write down is None or empty, and what needs it is not judged."""

    histories: Sequence[History]
    calls: Mapping[str, Sequence[LedgerEntry]]
    """What the model server was asked, by run."""
    tool_starts: Mapping[str, Sequence[Mapping[str, Any]]]
    """What the tools wrote when they began, by run."""
    unended: Sequence[str] = ()
    """What is said of each run that did not end in time."""
    left: Mapping[str, Any] = field(default_factory=dict)
    """What the indexes and the broker still have."""
    sent: Sequence[Sent] = ()
    watched: Sequence[Mapping[str, Any]] = ()
    """What watchers saw, in the order in which they wrote it (tests/chaos/watchers.py)."""
    deaths: int | None = None
    """How many processes of workers were killed or frozen."""
    backlog: Sequence[tuple[int, int]] = ()
    """Samples: messages in the broker, steps that wait for a worker."""
    slack: float = SLACK
    at: float = 0.0
    """When it was gathered: a model call that is open then has lasted until then. Epoch seconds."""

    @property
    def runs(self) -> Iterator[tuple[Run, Sequence[StoredEvent]]]:
        """All runs that have ended, with their events."""
        return (pair for history in self.histories for pair in history.ended)

    def own_model_calls(self, run: Run) -> int:
        """The calls of models that a run counts, without those of its children: these are its own, too."""
        known = {each.id: each for history in self.histories for each in history.runs.values()}
        return run.usage.model_calls - sum(known[child.run_id].usage.model_calls for child in run.children)


async def read_histories(store: Store, run_ids: Iterable[str]) -> list[History]:
    """The conversations of these runs, which are all that there were in them."""
    by_conversation: dict[str, dict[str, Run]] = defaultdict(dict)
    for run_id in run_ids:
        run = await store.runs.get(run_id)
        by_conversation[run.conversation_id][run_id] = run
    found = []
    for conversation_id, runs in by_conversation.items():
        found.append(
            History(
                await store.runs.conversation(conversation_id),
                await store.runs.entries(conversation_id, limit=100_000),
                runs,
                {run_id: await _events(store, run_id) for run_id in runs},
                [],
            )
        )
    return found


async def _events(store: Store, run_id: str) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    while page := await store.feeds.page(run_id, after=found[-1].seq if found else 0):
        found += page
    return found


def keys_of(history: History) -> list[str]:
    """The keys of a conversation and its runs that must expire."""
    conversation = history.conversation.id
    of_runs = [key for run_id in history.runs for key in (keys.run(run_id), keys.feed(run_id))]
    return [keys.conversation(conversation), keys.log(conversation), *of_runs]


def calls_by_run(ledger: Iterable[LedgerEntry]) -> dict[str, list[LedgerEntry]]:
    """What the model server was asked, by run."""
    found: dict[str, list[LedgerEntry]] = defaultdict(list)
    for entry in ledger:
        found[entry.run or ""].append(entry)
    return found


def starts_by_run(ledger: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """What the tools wrote when they began, by run: the calls are named ``<run>:<step>:<call id>``."""
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in ledger:
        if line["event"] == "begin":
            found[line["call"].partition(":")[0]].append(line)
    return found


def read_lines(path: Path) -> list[dict[str, Any]]:
    """A ledger of JSON lines; a line that a kill cut short is left out."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def message_of(entry: StoredEvent) -> dict[str, Any] | None:
    """The message that an entry or event brings; None if it brings none."""
    return entry.data.get("message")
