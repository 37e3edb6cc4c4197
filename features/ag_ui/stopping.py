"""The route that stops: the protocol has none, and a client that goes away does not mean it."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from pydantic import StringConstraints
from starlette.responses import Response

from api.http.answers import answer
from api.http.audit import detail
from palaver import operations
from palaver.errors import StateConflict, UnknownConversation, UnknownRun
from palaver.operations import Backend, Caller
from palaver.schemas.fields import DataModel

from .dialect import AG_UI, PREFIX, ThreadInPath, conversation_of_thread


class ThreadStop(DataModel):
    """The wish to stop."""

    reason: Annotated[str, StringConstraints(max_length=1000)] | None = None


class StoppedThread(DataModel):
    """The answer to that wish."""

    stopped: bool
    runId: str | None
    """The run, as `result` of its events names it."""


@AG_UI.route(
    "POST",
    f"{PREFIX}/threads/{{thread_id}}/cancel",
    scope="runs:act",
    tag="ag_ui",
    summary="Stop what goes on in a thread",
    examples={"stop": {}},
    answers={200: ("Stopped, if anything went on.", StoppedThread)},
    problems=("not_durable",),
)
async def stop(backend: Backend, caller: Caller, thread_id: ThreadInPath, body: ThreadStop) -> Response:
    """Cancel the run that is going on. A client that only closes its connection stops nothing."""
    active = None
    with suppress(UnknownConversation):
        active = (await operations.read_conversation(backend, conversation_of_thread(backend, thread_id))).active_run
    if active is not None:
        detail(run=active, mode="now")
        try:
            await operations.cancel(backend, active, caller, reason=body.reason)
        except (StateConflict, UnknownRun):
            # It has ended meanwhile.
            active = None
    return answer(StoppedThread(stopped=active is not None, runId=active))
