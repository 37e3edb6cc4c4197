"""What a dialect makes of a run's events, by both roads: events in batches, and deltas written straight to a client.

All of it goes through the response that a client is answered with, so that what is recorded is what comes out of the
socket, whatever is behind. A folder `recorded` has what `compare` compares with: in `digests.json` a digest for each
shape, wire and road, and in `*.txt` one run on each wire, to be read. With REWRITE_PAGES=1 in the environment they are
written anew: what has changed is then to be said by name.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock
from weakref import ref

import orjson
from starlette.responses import Response
from starlette.types import Message, Scope

from api.http.client_connection import CONNECTION
from palaver import operations
from palaver.events import DELTAS, ON_REQUEST, EventKind
from palaver.operations import EventSlice, LogEntry, StoredEvent
from palaver.schemas.actions import Approvals
from palaver.schemas.models import AgentSpec, Run
from palaver.store.reading.events import joined
from tests.unit.run_shapes import AT, CONVERSATION, PICK, RUN, SEEDS, ShapedRun

AGENT: Final = AgentSpec(
    model="fake/echo", tools=("calculator", "send"), client_tools=(PICK,), approvals=Approvals(require=("send",))
)
PassOn = Callable[[StoredEvent], bool]
_DURABLE: Final = frozenset(kind for kind in EventKind if kind.durable)
_SHOWN: Final = ("approvals", 0)
"""The run that can be read."""


class Socket:
    """The connection of a client that takes all at once."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.was_cut = False

    async def send_chunk(self, piece: bytes) -> None:
        """Take a piece that the stream has waited with."""
        self.heard.append(piece)

    def write_chunk(self, piece: bytes) -> bool:
        """Take a piece at once."""
        self.heard.append(piece)
        return True

    def cut(self) -> None:
        """Be ended in the middle."""
        self.was_cut = True


class Replayed:
    """The store's side of a stream: the first ``known`` events are there when the client comes, and are read at once;
    the others come one by one, deltas past the generators where the stream takes them so. ``apart``: not at all."""

    def __init__(self, events: Sequence[StoredEvent], known: int, *, apart: bool = False) -> None:
        self.events, self.known, self.apart = events, known, apart

    async def follow(
        self,
        backend: Any,
        run_id: str,
        after: int = 0,
        include: str | None = None,
        *,
        counted: bool = True,
        pass_on: PassOn | None = None,
    ) -> AsyncGenerator[Sequence[StoredEvent], None]:
        """Yield them as `operations.follow` does."""
        left = [each for each in self.events if each.seq > after and (include or each.type not in ON_REQUEST)]
        known = [each for each in left if each.seq <= self.known]
        if known:
            yield known
        for event in left[len(known) :]:
            if not self.apart and event.type in DELTAS and pass_on is not None and pass_on(event):
                continue
            yield [event]
        yield []

    async def read_events(
        self, backend: Any, run_id: str, after: int, limit: int, include: str | None = None
    ) -> EventSlice:
        """Return a page of them."""
        there = [each for each in self.events if after < each.seq <= self.known]
        return EventSlice(there[:limit], there[:limit][-1].seq if there else after, more=len(there) > limit)

    async def read_log(self, backend: Any, conversation_id: str, **more: Any) -> AsyncIterator[list[LogEntry]]:
        """Yield the log."""
        yield log_of(self.events)

    async def read_run_log(self, backend: Any, run: Run) -> AsyncIterator[list[LogEntry]]:
        """Yield the run's part of it."""
        yield log_of(self.events)

    async def read_run(self, backend: Any, run_id: str) -> Run:
        """Return the run as it is in the end."""
        return run_of(self.events, len(self.events))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Have streams read from here for as long as the context lasts."""
        names = ("follow", "read_events", "read_log", "read_run_log", "read_run")
        with mock.patch.multiple(operations, **{name: getattr(self, name) for name in names}):
            yield

    async def heard(self, response: Response) -> bytes:
        """Return all that a client is sent, and in the end a note if it was cut."""
        socket = Socket()
        head: list[Message] = []

        async def send(message: Message) -> None:
            head.append(message)

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        scope: Scope = {"type": "http", "http_version": "1.1", "extensions": {CONNECTION: ref(socket)}}
        await response(scope, receive, send)
        return b"".join(socket.heard) + (b": cut\n\n" if socket.was_cut else b"")


def log_of(events: Sequence[StoredEvent]) -> list[LogEntry]:
    """What the log has of them."""
    return [
        LogEntry(each.run_id, each.seq, each.at, each.type, each.payload, each.seq)
        for each in events
        if each.type in _DURABLE
    ]


def run_of(events: Sequence[StoredEvent], known: int) -> Run:
    """The run when so many of its events are there."""
    over = known >= len(events)
    end = events[-1].data
    facts = {"status": end["status"], "stop_reason": end["stop_reason"], "error": end["error"], "output": "4"}
    times = {"created_at": AT, "deadline": AT, "ended_at": AT if over else None}
    about = {"id": RUN, "conversation_id": CONVERSATION, "agent": AGENT, "model": "fake/echo", "times": times}
    return Run.model_validate({**about, "last_event_id": known, **(facts if over else {"status": "running"})})


def backend() -> Any:
    """Return as much of a backend as streams ask for."""
    return SimpleNamespace(closing=asyncio.Event())


class Recorder:
    """The streams of a run by wire and road, those of one kind behind each other. A client comes back at two places,
    and with ``everywhere`` at each event."""

    def __init__(self, events: Sequence[StoredEvent], *, everywhere: bool) -> None:
        self.events = events
        self.found: dict[str, bytes] = {}
        last = len(events)
        self.places = list(range(1, last + 1, 1 if everywhere else max(1, last // 2)))
        self.roads = {
            "replay": Replayed(events, last),
            "live": Replayed(events, 1),
            "apart": Replayed(events, 1, apart=True),
            "joined": Replayed(joined(events), last),
        }

    async def record(self, name: str, source: Replayed, stream: Callable[[Replayed], Awaitable[bytes]]) -> None:
        """Add what a stream of this source brings."""
        with source.in_place():
            self.found[name] = self.found.get(name, b"") + await stream(source)

    async def record_roads(self, wire: str, stream: Callable[[Replayed], Awaitable[bytes]]) -> None:
        """Add what it brings by each road."""
        for road, source in self.roads.items():
            await self.record(f"{wire} {road}", source, stream)

    async def record_answered(self, wire: str, stream: Callable[..., Awaitable[bytes]]) -> None:
        """Add what it brings to a client that has answered an action: when that is seen, and in the end."""
        settled = places_of(self.events, (EventKind.ACTION_RESOLVED, EventKind.CHILD_ACTION_RESOLVED))
        for kind in (EventKind.ACTION_REQUIRED, EventKind.CHILD_ACTION_REQUIRED):
            for event in (each for each in self.events if each.type == kind):
                answers = frozenset({event.data["action"]["id"]})
                for known in (len(self.events), *settled):
                    await self.record(
                        f"{wire} answered", Replayed(self.events, known), partial(stream, answers=answers)
                    )


def places_of(events: Sequence[StoredEvent], kinds: Sequence[EventKind]) -> list[int]:
    """The numbers of the events of some kinds."""
    return [event.seq for event in events if event.type in kinds]


async def compare(
    folder: Path, shape: str, record: Callable[[Recorder], Awaitable[None]], wires: Sequence[str]
) -> None:
    """Assert that the streams of all runs of a shape are those that the folder has. Deltas are written straight to
    clients of these wires: both roads lead to the same there."""
    digests: dict[str, Any] = defaultdict(hashlib.sha256)
    for seed in range(SEEDS):
        recorder = Recorder(ShapedRun(shape, seed).events, everywhere=seed == 0)
        await record(recorder)
        streams = recorder.found
        for wire in wires:
            assert streams.pop(f"{wire} apart") == streams[f"{wire} live"], "both roads lead to the same"
        for name, stream in streams.items():
            digests[name].update(stream)
            if (shape, seed) == _SHOWN and " " not in name.replace(" live", ""):
                _compare_text(folder / f"{name.removesuffix(' live')}.txt", stream.replace(b"\0", b"# "))
    found = {name: digest.hexdigest()[:16] for name, digest in sorted(digests.items())}
    file = folder / "digests.json"
    known = orjson.loads(file.read_bytes()) if file.exists() else {}
    if os.environ.get("REWRITE_PAGES"):
        option = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
        file.write_bytes(orjson.dumps({**known, shape: found}, option=option))
        return
    differ = [name for name in found.keys() | known[shape].keys() if found.get(name) != known[shape].get(name)]
    assert sorted(differ) == [], "if it is to be this: REWRITE_PAGES=1"


def _compare_text(file: Path, stream: bytes) -> None:
    if os.environ.get("REWRITE_PAGES"):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(stream)
    assert file.read_bytes() == stream, "if it is to be this: REWRITE_PAGES=1"
