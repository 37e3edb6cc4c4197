"""Following a run as AG-UI: from its start, or from an answer to it on."""

from __future__ import annotations

from typing import Final

from api.kit.projections import ViewStream
from palaver.operations import Backend, Caller
from palaver.schemas.models import Run

from .frames import AgEvent
from .messages import results_in, said_in, snapshot_of
from .projection import RunProjection
from .wire import RunAgentInput

_HEADERS: Final = {"Cache-Control": "no-cache"}


async def stream_of(
    backend: Backend,
    caller: Caller,
    body: RunAgentInput,
    run: Run,
    *,
    answers: frozenset[str] = frozenset(),
    again: bool = False,
) -> ViewStream:
    """Return the response that follows a run; behind these ``answers`` to it, if there are any, and all of it behind a
    snapshot if the client comes ``again``. There is room for a watcher. A key that may not read has the run alone, and
    nothing else of the thread.

    Raises:
        StoreUnavailable: the snapshot took too long.
    """
    said = said_in(body.messages)
    reads = caller.scopes is None or "runs:read" in caller.scopes
    before = None
    if again and reads:
        before = await snapshot_of(backend, run.conversation_id, said, before=(run.id, 0))
    projection = RunProjection(
        body.threadId,
        body.runId,
        run.id,
        edge=run.last_event_id,
        answers=frozenset() if again else answers,
        # A snapshot takes from the client what it had of the run.
        known=results_in(body.messages) if before is None else frozenset(),
    )
    opening = [projection.opening(), *([] if before is None else [before])]

    async def snapshot(reached: int) -> AgEvent | None:
        # The log may have more already, which the client is told of by what comes behind.
        return await snapshot_of(backend, run.conversation_id, said, before=(run.id, reached))

    shown = snapshot if reads else None
    return ViewStream(backend, run, projection, _HEADERS, opening=opening, snapshot=shown)
