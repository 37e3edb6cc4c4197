"""Coming back to an answer that is being written, and stopping it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from pydantic import Field, StringConstraints
from starlette.responses import Response

from api.http.answers import answer
from api.http.audit import detail
from api.http.headers import EVENT_STREAM
from api.kit.signatures import AgentInPath
from palaver import operations
from palaver.errors import StateConflict, UnknownConversation, UnknownRun
from palaver.operations import Backend, Caller
from palaver.schemas.fields import AtMost, DataModel, Strict
from palaver.schemas.models import Run

from .chunks import STREAM
from .dialect import AI_SDK, ChatInPath, conversation_of_chat
from .following import stream_of

_GRACE: Final = timedelta(minutes=5)
"""The time for which an answer that has ended is sent once more: its client may have lost the connection before it
had all of it, and has no other way to get the rest."""


@AI_SDK.route(
    "GET",
    "/ui/agents/{name}/chat/{chat_id}/stream",
    scope="runs:read",
    tag="ai_sdk",
    summary="Come back to an answer",
    answers={
        200: ("The whole answer from its start, and how it goes on.", None),
        204: ("No answer is being written, and none has ended within the last five minutes.", None),
    },
    problems=("too_many_watchers",),
    also={EVENT_STREAM: STREAM},
)
async def resume(backend: Backend, name: AgentInPath, chat_id: ChatInPath) -> Response:
    """The newest answer of the chat, whichever agent writes it. The client forgets what it had of it."""
    run = await _newest(backend, conversation_of_chat(backend, chat_id))
    if run is None:
        return Response(status_code=204)
    operations.admit_watcher(backend)
    return stream_of(backend, run)


async def _newest(backend: Backend, conversation_id: str) -> Run | None:
    """Return the run that is unfinished and begins last, or has ended a moment ago."""
    with suppress(UnknownConversation, UnknownRun):
        conversation = await operations.read_conversation(backend, conversation_id)
        if conversation.newest_run is not None:
            run = await operations.read_run(backend, conversation.newest_run)
            ended = run.times.ended_at
            if ended is None or datetime.now(UTC) - ended < _GRACE:
                return run
    return None


class StopRequest(Strict):
    """The answer to stop."""

    runId: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        default=None, description="Stop only this one: `messageMetadata.runId` of its start. Another one goes on."
    )
    reason: Annotated[str, AtMost("reason")] | None = Field(default=None, description="For the record of the run.")


class Stopped(DataModel):
    """The outcome of a stop."""

    stopped: bool
    """False: there was nothing to stop, or another answer is being written than the one that was meant."""
    runId: str | None
    """The run that was stopped, or else the one that goes on."""


_ANY: Final = StopRequest.model_construct()


@AI_SDK.route(
    "POST",
    "/ui/agents/{name}/chat/{chat_id}/stop",
    scope="runs:act",
    tag="ai_sdk",
    summary="Stop an answer",
    examples={"whatever is being written": {}, "one answer": {"runId": "run_00" + "0" * 26}},
    answers={200: ("Stopped, or nothing was to be stopped.", Stopped)},
    problems=("not_durable",),
)
async def stop(
    backend: Backend, caller: Caller, name: AgentInPath, chat_id: ChatInPath, body: StopRequest = _ANY
) -> Response:
    """Cancel the run that writes the answer. `stop()` of the client alone only ends its connection."""
    unfinished = await _unfinished(backend, conversation_of_chat(backend, chat_id))
    run_id = body.runId if body.runId in unfinished else next(iter(unfinished), None)
    stopped = run_id is not None and body.runId in (None, run_id)
    if stopped and run_id is not None:
        detail(run=run_id, mode="now")
        try:
            await operations.cancel(backend, run_id, caller, reason=body.reason)
        except (StateConflict, UnknownRun):
            # It has ended meanwhile.
            stopped = False
    return answer(Stopped(stopped=stopped, runId=run_id))


async def _unfinished(backend: Backend, conversation_id: str) -> Sequence[str]:
    """Return the runs of a chat that are going on or wait for their turn, in that order."""
    with suppress(UnknownConversation):
        return (await operations.read_conversation(backend, conversation_id)).unfinished_runs
    return ()
