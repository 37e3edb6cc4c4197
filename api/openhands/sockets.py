"""What a client is told by its socket: the state as it is, then each event as it happens, and the state at each stop.

A client takes the end of a run from a ``full_state`` whose status is not running: it comes behind the run's events,
with the status that these had brought, whatever has been begun since.
"""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

import orjson
from starlette.websockets import WebSocket

from palaver.events import EventKind

from .. import operations
from ..operations import Backend, LogEntry
from ..sockets import CloseCodes
from .dialect import OPENHANDS
from .events import FULL_STATE, STATUS, Event
from .generations import Generation
from .looking import Seen, look, number_of
from .statuses import ExecutionStatus

_CONNECTING: Final = timedelta(seconds=10)
_LATELY: Final = 200
"""Entries, and the time, that an older client may have missed while it connected."""
_CODES: Final = CloseCodes(unauthenticated=4001, unknown=4004)
_STOPS: Final = frozenset(
    {EventKind.RUN_PAUSING, EventKind.RUN_PAUSED, EventKind.RUN_REQUIRES_ACTION, EventKind.RUN_FINISHED}
)


def key_in(frame: str) -> bytes | None:
    """The key in a first frame: ``{"type": "auth", "session_api_key": …}``."""
    try:
        match orjson.loads(frame):
            case {"type": "auth", "session_api_key": str(key)}:
                return key.encode()
    except orjson.JSONDecodeError:
        return None
    return None


@OPENHANDS.socket("/openhands/sockets/events/{conversation}", key_in=key_in, codes=_CODES)
async def events_socket(backend: Backend, socket: WebSocket) -> None:
    """Tell a client of a conversation from now on. What was before, it reads by HTTP."""
    with operations.place_of_watcher(backend):
        seen = await look(backend, number_of(socket.path_params["conversation"]))
        await _send(socket, _full_state(seen))
        after, revision = await _begin(backend, seen), seen.conversation.revision
    async with aclosing(operations.follow_log(backend, seen.id, after=after, revision=revision)) as pages:
        async for page in pages:
            for entry in page:
                await _tell(backend, socket, seen, entry)
            if not page:
                await _send(socket, _full_state(await look(backend, seen.number)))


async def _begin(backend: Backend, seen: Seen) -> int:
    """The position behind which a client is told everything.

    The newer client waits for its socket before it goes on, and reads again what it has missed. The older one does
    neither: what happened while its socket was made, it would never hear.
    """
    position = seen.conversation.entries
    if seen.kept.generation is Generation.OLDER:
        since = datetime.now(UTC) - _CONNECTING
        async with aclosing(operations.read_log(backend, seen.id, after=max(position - _LATELY, 0))) as pages:
            async for page in pages:
                for entry in page:
                    if entry.at >= since:
                        return min(position, entry.position - 1)
    return position


async def _tell(backend: Backend, socket: WebSocket, seen: Seen, entry: LogEntry) -> None:
    events = seen.writer.of(entry)
    for event in events:
        await _send(socket, event)
    if entry.type in _STOPS:
        [status] = [event["value"] for event in events if event.get("key") == STATUS]
        await _send(socket, _full_state(await look(backend, seen.number), ExecutionStatus(status)))


def _full_state(seen: Seen, status: ExecutionStatus | None = None) -> Event:
    # It is not kept, so it needs no name that is found again.
    return seen.writer.state(str(uuid4()), datetime.now(UTC), FULL_STATE, seen.info(status))


async def _send(socket: WebSocket, event: dict[str, Any]) -> None:
    await socket.send_text(orjson.dumps(event).decode())
