"""The socket of a client: it sends the state as it is, then each event as it happens, and the state at each stop.

A client takes the end of a run from a ``full_state`` whose status is not running: it comes behind the run's events, and
a little later again, unless it runs again by then. Clients listen for it only once their request to run is answered.
Deltas of a model's answer come between the events of the log, for clients that ask for them, and are never stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol
from uuid import UUID, uuid4

import orjson
from starlette.websockets import WebSocket

from api.http.requests import caller_of
from api.http.sockets import CloseCodes, send_frame, text_frame, turns_of
from palaver import operations
from palaver.errors import Refused, UnknownConversation, UnknownRun
from palaver.events import DELTAS, EventKind
from palaver.operations import Backend, EventSlice, LogEntry, StoredEvent
from palaver.processes.tasks import end

from .dialect import OPENHANDS, number_of
from .events import FULL_STATE, STATUS, Event, Writer
from .followers import Followers
from .history import system_prompt
from .ids import FIRST
from .shared_events import SharedEvent, shared, shared_delta
from .snapshot import NAME, Snapshot, load_snapshot
from .state import Generation
from .tables import ExecutionStatus

Tell = Callable[[Event], Awaitable[None]]


class Deltas:
    """The deltas of one run after the other, for one socket: each delta before the entry of the log that it
    precedes."""

    def __init__(self, backend: Backend, writer: Writer, tell: Tell) -> None:
        self._backend, self._writer, self._tell = backend, writer, tell
        self._telling = asyncio.Lock()
        self._run = ""
        self._sent_up_to = 0
        """The number in the run up to which everything was sent."""
        self._hearing: asyncio.Task[None] | None = None

    async def hear(self, run_id: str, after: int) -> None:
        """Send the deltas of this run, behind an event of it."""
        await self.hear_no_more()
        self._run, self._sent_up_to = run_id, after
        self._hearing = asyncio.create_task(self._hear())

    async def hear_no_more(self) -> None:
        """Send no deltas any more."""
        if self._hearing is not None:
            await end(self._hearing)
        self._run, self._hearing = "", None

    @asynccontextmanager
    async def before(self, entry: LogEntry) -> AsyncIterator[None]:
        """Hold around the sending of an entry: the deltas before it are sent, and none behind it."""
        async with self._telling:
            if entry.run_id == self._run:
                await self._catch_up(entry.seq)
            yield
        if entry.type == EventKind.RUN_STARTED:
            await self.hear(entry.run_id, entry.seq)
        elif entry.type == EventKind.RUN_FINISHED and entry.run_id == self._run:
            await self.hear_no_more()

    async def _hear(self) -> None:
        with suppress(UnknownRun):
            batches = operations.follow(self._backend, self._run, self._sent_up_to, "reasoning", counted=False)
            async with aclosing(batches):
                async for events in batches:
                    async with self._telling:
                        await self._tell_of(events)

    async def _catch_up(self, seq: int) -> None:
        """Send the deltas that the feed has before an event that is in the log already."""

        async def read() -> EventSlice:
            return await operations.read_events(
                self._backend, self._run, self._sent_up_to, seq - 1 - self._sent_up_to, "reasoning"
            )

        with suppress(UnknownRun, Refused):
            while self._sent_up_to < seq - 1:
                before = self._sent_up_to
                events = (await operations.once_there(read)).events
                await self._tell_of([event for event in events if event.seq < seq])
                if self._sent_up_to == before:
                    break
        self._sent_up_to = max(self._sent_up_to, seq)

    async def _tell_of(self, events: Sequence[StoredEvent]) -> None:
        for event in events:
            if event.seq > self._sent_up_to:
                self._sent_up_to = event.seq
                if event.type in DELTAS:
                    await self._tell(shared_delta(self._writer, event))


_CONNECTING: Final = timedelta(seconds=10)
_LATELY: Final = 200
"""Entries at most, and the time before, that an older client may have missed while it connected."""
_BACK: Final = timedelta(seconds=65)
"""The time within which an older client is back: it tries at once, and again 1, 3, 7, 15, 31 and 61 seconds later. Not
longer: all who connect meanwhile may be sent again what they were sent before."""
_AGAIN: Final = (1.0, 4.0)
"""Seconds after which a state is sent again, each after the one before: answers to requests come late."""
_BEFORE: Final = timedelta(microseconds=1)
"""The time between an event that is made up right before an entry, and the entry: the log has milliseconds."""
_CODES: Final = CloseCodes(unauthenticated=4001, unknown=4004, forbidden=4001, restarting=1001)
"""Both generations connect again after 1001; after 1012 the older one would not."""
_FAILURES: Final = frozenset({ExecutionStatus.ERROR, ExecutionStatus.STUCK})
_STOPS: Final = frozenset(
    {EventKind.RUN_PAUSING, EventKind.RUN_PAUSED, EventKind.RUN_REQUIRES_ACTION, EventKind.RUN_FINISHED}
)
_GOES_ON: Final = frozenset({EventKind.MESSAGE_CREATED, EventKind.RUN_CREATED, EventKind.RUN_RESUMED})


class _Remind(Protocol):
    async def __call__(self, *, running: bool) -> None:
        """Send the state; with ``running`` also while the conversation runs."""


def key_in(frame: str) -> bytes | None:
    """Return the key in a first frame: ``{"type": "auth", "session_api_key": …}``."""
    try:
        match orjson.loads(frame):
            case {"type": "auth", "session_api_key": str(key)}:
                return key.encode()
    except orjson.JSONDecodeError:
        return None
    return None


@OPENHANDS.socket(
    "/openhands/sockets/events/{conversation}", scope="runs:read", key_in=key_in, codes=_CODES, keeps_to=True
)
async def events_socket(backend: Backend, socket: WebSocket) -> None:
    """Send a client the events of a conversation from now on. It reads earlier ones by HTTP."""
    await _keep_to_conversation(backend, socket)
    with operations.place_of_watcher(backend):
        snapshot = await _read(backend, _number(socket))
        await _send(socket, _full_state(snapshot))
        position, revision = await _begin(backend, snapshot), snapshot.conversation.revision
        over, new = snapshot.status.over, snapshot.conversation.entries
    try:
        async with (
            AsyncExitStack() as here,
            _reminding(backend, socket, snapshot) as (remind, forget),
            _telling_deltas(backend, socket, snapshot) as deltas,
            aclosing(operations.follow_log(backend, snapshot.id, after=position, revision=revision)) as pages,
        ):
            follower = here.enter_context(backend.guest(Followers).joined(snapshot.id, position, revision))
            async for page, revision in pages:
                for entry in page:
                    if entry.position == FIRST + 1 and (agent := snapshot.conversation.agent) is not None:
                        # With the first words, as it stands before them in the list.
                        at = min(snapshot.conversation.created_at, entry.at)
                        await _send(socket, await system_prompt(backend, snapshot, agent, at))
                    if over and entry.position > new and entry.type == EventKind.MESSAGE_CREATED and not entry.run_id:
                        # Programs ask the client for the status before they run it, and what it does with the words
                        # takes a while. It is no full_state: that would end the wait for the run which may have begun.
                        over = False
                        await _send(socket, _idle(snapshot, entry))
                    async with deltas.before(entry) if deltas else nullcontext():
                        for event in shared(snapshot.writer, entry):
                            await _send(socket, await _as_it_is(backend, snapshot, entry, event))
                            over = _is_over(event, over)
                    position = entry.position
                    if entry.type in _STOPS:
                        await remind(running=False)
                    elif entry.type in _GOES_ON:
                        await forget()
                if not page:
                    await remind(running=True)
                follower.reach(position, revision)
    finally:
        if backend.closing.is_set() and snapshot.state.generation is Generation.OLDER:
            await operations.leave_position(backend, snapshot.id, NAME, position, lasts=_BACK)


async def _as_it_is(backend: Backend, snapshot: Snapshot, entry: LogEntry, event: Event) -> Event:
    """Return an event as a client may have it by now.

    A status of error or stuck ends the wait of a client at once, whatever run it is for: for a client that is behind,
    and has begun another run already, the status is running. The event is sent all the same, or it would be sent later,
    as missed."""
    if event.get("key") != STATUS or event["value"] not in _FAILURES:
        return event
    newest = (await _now(backend, snapshot.number)).conversation.newest_run
    return event if newest == entry.run_id else {**event, "value": ExecutionStatus.RUNNING.value}


async def _now(backend: Backend, number: UUID) -> Snapshot:
    """Return the conversation, read once for all sockets that want it now."""
    return await operations.once_there(lambda: _read(backend, number))


async def _read(backend: Backend, number: UUID) -> Snapshot:
    reads = backend.guest(Followers).snapshots
    return await reads.read(number, lambda: load_snapshot(backend, number))


def _number(socket: WebSocket) -> UUID:
    try:
        return number_of(socket.path_params["conversation"])
    except Refused:
        raise UnknownConversation(socket.path_params["conversation"]) from None


async def _keep_to_conversation(backend: Backend, socket: WebSocket) -> None:
    caller = caller_of(socket)
    if caller.conversation is not None:
        conversation_id = operations.conversation_of(backend, _number(socket))
        await operations.keep_to_conversation(backend, caller, conversation_id)


@asynccontextmanager
async def _reminding(
    backend: Backend, socket: WebSocket, snapshot: Snapshot
) -> AsyncIterator[tuple[_Remind, Callable[[], Awaitable[None]]]]:
    """Provide two functions: one sends the state as it is, and again later; the other calls that off, as the
    conversation goes on: a state that was read before a run began, and comes once its client waits for the run, would
    end the wait."""
    again: list[asyncio.Task[None]] = []

    async def tell(*, running: bool) -> None:
        now = await _now(backend, snapshot.number)
        if now.status is ExecutionStatus.DELETING:
            # No stop of it ends a wait: the waiter hears that it is gone.
            return
        if running or now.status is not ExecutionStatus.RUNNING:
            await _send(socket, _full_state(now))

    async def tell_again() -> None:
        for seconds in _AGAIN:
            await asyncio.sleep(seconds)
            await tell(running=False)

    async def remind(*, running: bool) -> None:
        await end(*again)
        await tell(running=running)
        again[:] = [asyncio.create_task(tell_again())]

    async def forget() -> None:
        await end(*again)

    try:
        yield remind, forget
    finally:
        await forget()


@asynccontextmanager
async def _telling_deltas(backend: Backend, socket: WebSocket, snapshot: Snapshot) -> AsyncIterator[Deltas | None]:
    if not snapshot.state.streams:
        yield None
        return
    deltas = Deltas(backend, snapshot.writer, lambda event: _send(socket, event))
    try:
        if snapshot.active is not None:
            await deltas.hear(snapshot.active.id, snapshot.active.last_event_id)
        yield deltas
    finally:
        await deltas.hear_no_more()


async def _begin(backend: Backend, snapshot: Snapshot) -> int:
    """Return the position behind which a client is sent everything.

    The newer client waits for its socket before it goes on, and reads again what it has missed. The older one does
    neither: it would never hear of events while its socket was made, or while it had none, as the process had ended. It
    does not say who it is: so all start where the one was that had been sent least.
    """
    position = snapshot.conversation.entries
    if snapshot.state.generation is Generation.OLDER:
        left = await operations.position_left(backend, snapshot.id, NAME)
        if left is not None:
            return min(position, left)
        since = datetime.now(UTC) - _CONNECTING
        async with aclosing(operations.read_log(backend, snapshot.id, after=max(position - _LATELY, 0))) as pages:
            async for page in pages:
                for entry in page:
                    if entry.at >= since:
                        return min(position, entry.position - 1)
    return position


def _is_over(event: Event, before: bool) -> bool:
    """Tell whether a message of the user makes the conversation idle, once this event is sent."""
    return ExecutionStatus(event["value"]).over if event.get("key") == STATUS else before


def _idle(snapshot: Snapshot, entry: LogEntry) -> Event:
    # Clients put what they hear in order by its time.
    return snapshot.writer.state(str(uuid4()), entry.at - _BEFORE, STATUS, ExecutionStatus.IDLE.value)


def _full_state(snapshot: Snapshot) -> Event:
    # It is not kept, so it needs no name that is found again.
    return snapshot.writer.state(str(uuid4()), datetime.now(UTC), FULL_STATE, snapshot.info())


async def _send(socket: WebSocket, event: Event) -> None:
    # All sockets of a conversation have the same news at the same moment.
    await turns_of(socket).take()
    await send_frame(socket, event.frame if isinstance(event, SharedEvent) else text_frame(orjson.dumps(event)))
