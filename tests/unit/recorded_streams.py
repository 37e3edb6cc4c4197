"""What each dialect makes of a run's events, by both roads: events in batches, and deltas written straight to a client.

All of it goes through the response that a client is answered with, so that what is recorded is what comes out of the
socket, whatever is behind.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock
from uuid import UUID
from weakref import ref

import orjson
from rich.console import Console
from starlette.responses import Response
from starlette.types import Message, Scope

from api.http.client_connection import CONNECTION
from api.kit.streams import Outlet
from api.native.frames import frame
from features.ag_ui.following import stream_of as ag_ui_stream
from features.ag_ui.wire import RunAgentInput
from features.ai_sdk.following import stream_of as ai_sdk_stream
from features.openai.chat_stream import ChatStream
from features.openai.ids import ResponseId
from features.openai.streaming import ResponseEvents
from features.openai.wire import ChatCreate
from features.openhands.events import Writer
from features.openhands.state import Generation
from palaver import operations
from palaver.cli.transcript import Transcript
from palaver.errors import Refused
from palaver.events import DELTAS, ON_REQUEST, EventKind, read_event
from palaver.operations import EventSlice, LogEntry, StoredEvent
from palaver.schemas.actions import Approvals
from palaver.schemas.models import AgentSpec, Run
from palaver.store.reading.events import joined
from tests.unit.run_shapes import AT, CONVERSATION, PICK, RUN

AGENT: Final = AgentSpec(
    model="fake/echo", tools=("calculator", "send"), client_tools=(PICK,), approvals=Approvals(require=("send",))
)
WIRES: Final = ("native", "ai_sdk", "ag_ui", "responses", "chat")
"""Those that deltas are written straight to."""
PassOn = Callable[[StoredEvent], bool]
_DURABLE: Final = frozenset(kind for kind in EventKind if kind.durable)
_CLOCK: Final = re.compile(r"\d\d:\d\d:\d\d")
_BODY: Final = RunAgentInput.model_validate(
    {"threadId": "thread-1", "runId": "run-1", "messages": [{"id": "u1", "role": "user", "content": "hello"}]}
)
_CHAT: Final = ChatCreate.model_validate(
    {"model": "fake/echo", "messages": [{"role": "user", "content": "hello"}], "stream": True}
)
_CALLER: Final[Any] = SimpleNamespace(scopes=None)


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


def _backend() -> Any:
    return SimpleNamespace(closing=asyncio.Event())


async def _ai_sdk(source: Replayed, answers: frozenset[str]) -> bytes:
    return await source.heard(ai_sdk_stream(_backend(), run_of(source.events, source.known), answers))


async def _ag_ui(source: Replayed, answers: frozenset[str], *, again: bool = False) -> bytes:
    run = run_of(source.events, source.known)
    return await source.heard(await ag_ui_stream(_backend(), _CALLER, _BODY, run, answers=answers, again=again))


async def _response(source: Replayed, part: int, behind: int | None = None) -> bytes:
    response = ResponseEvents(_backend(), ResponseId(RUN, part), run_of(source.events, source.known))
    if behind is not None:
        try:
            await response.go_behind(behind)
        except Refused as refused:
            return f"{refused.code} {refused}\n".encode()
    return await source.heard(response)


async def _chat(source: Replayed) -> bytes:
    run = run_of(source.events, source.known)
    return await source.heard(ChatStream(_backend(), _CALLER, run, _CHAT, keeps=True, headers={}))


async def _native(source: Replayed) -> bytes:
    outlet, heard = Outlet(frame), Socket()
    outlet.connection = heard  # type: ignore[assignment]
    async for events in source.follow(None, RUN, include="reasoning", pass_on=outlet.pass_on):
        heard.heard += map(frame, events)
    return b"".join(heard.heard)


def _openhands(events: Sequence[StoredEvent]) -> bytes:
    shown: list[dict[str, Any]] = []
    for generation in Generation:
        writer = Writer(UUID(int=1), generation, {PICK.name: PICK})
        for event in events:
            if event.type in DELTAS:
                # Its id is another one each time.
                shown.append({**writer.delta(event), "id": ""})
            shown += [each for entry in log_of([event]) for each in writer.of(entry)]
    return b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in shown)


def _transcript(events: Sequence[StoredEvent]) -> bytes:
    written = io.StringIO()
    told = Transcript(Console(file=written, width=200, no_color=True), show_input=True)
    for event in events:
        told.show(read_event(event.to_json()))
        written.write(f"\x00{told.doing}\n")
    return _CLOCK.sub("00:00:00", written.getvalue()).encode()


def places_of(events: Sequence[StoredEvent], kinds: Sequence[EventKind]) -> list[int]:
    """The numbers of the events of some kinds."""
    return [event.seq for event in events if event.type in kinds]


async def streams_of(events: Sequence[StoredEvent], *, everywhere: bool) -> dict[str, bytes]:
    """All streams of a run by dialect and road, those of one kind behind each other. A client comes back at two
    places, and with ``everywhere`` at each event."""
    last = len(events)
    step = 1 if everywhere else max(1, last // 2)
    places = list(range(1, last + 1, step))
    parts = 1 + len(places_of(events, (EventKind.RUN_REQUIRES_ACTION,)))
    answers = [
        frozenset({action["id"]})
        for action in (e.data["action"] for e in events if e.type == EventKind.ACTION_REQUIRED)
    ] + [frozenset({e.data["action"]["id"]}) for e in events if e.type == EventKind.CHILD_ACTION_REQUIRED]
    found: dict[str, bytes] = {}

    async def record(name: str, source: Replayed, stream: Callable[[Replayed], Awaitable[bytes]]) -> None:
        with source.in_place():
            found[name] = found.get(name, b"") + await stream(source)

    none = frozenset[str]()
    roads = {
        "replay": Replayed(events, last),
        "live": Replayed(events, 1),
        "apart": Replayed(events, 1, apart=True),
        "joined": Replayed(joined(events), last),
    }
    for road, source in roads.items():
        await record(f"ai_sdk {road}", source, partial(_ai_sdk, answers=none))
        await record(f"ag_ui {road}", source, partial(_ag_ui, answers=none))
        await record(f"chat {road}", source, _chat)
        await record(f"native {road}", source, _native)
        for part in range(parts):
            await record(f"responses {road}", source, partial(_response, part=part))
    for place in places:
        await record("ai_sdk again", Replayed(events, place), partial(_ai_sdk, answers=none))
        await record("ag_ui again", Replayed(events, place), partial(_ag_ui, answers=none, again=True))
        await record("chat again", Replayed(events, place), _chat)
        for behind in (place * 1000, place * 1000 + 3):
            await record("responses again", Replayed(events, last), partial(_response, part=0, behind=behind))
    for answered in answers:
        for known in (last, *places_of(events, (EventKind.ACTION_RESOLVED, EventKind.CHILD_ACTION_RESOLVED))):
            await record("ai_sdk answered", Replayed(events, known), partial(_ai_sdk, answers=answered))
            await record("ag_ui answered", Replayed(events, known), partial(_ag_ui, answers=answered))
    found["openhands"] = _openhands(events)
    found["transcript"] = _transcript(events)
    return found
