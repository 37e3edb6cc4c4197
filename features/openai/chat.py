"""Chat completions: a run each, in a conversation of its own, for as long as its client is there."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final, cast

import orjson
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from api.http.answers import answer_json
from api.http.headers import EVENT_STREAM, JSON, IdempotencyKey, Offers
from api.http.requests import below_root, request_id_of
from api.kit.streams import gone
from palaver import operations
from palaver.errors import FieldError, Refused
from palaver.operations import Backend, Caller
from palaver.operations.admission import AGENT_PROBLEMS
from palaver.processes.tasks import end
from palaver.schemas.models import Run
from palaver.vocabulary.lifecycle import RunStatus

from .agents import agent_of, chat_options, options_of
from .chat_stream import ChatStream
from .completions import completion_of, let_go, refusal_of
from .creating import await_end, submission_of, submit
from .dialect import OPENAI
from .inputs import read_chat
from .servers import is_elsewhere
from .states import MODEL
from .wire import ChatCreate, OpenAiCompletion

_ONLY_IN_RESPONSES: Final = "is an MCP server, which only a response has: an approval has no words in a chat completion"
_LONGEST: Final = 366 * 86400.0
"""Seconds: a run has a deadline of its own, and a client that is gone ends it."""


@OPENAI.route(
    "POST",
    "/openai/v1/chat/completions",
    scope="runs:submit",
    tag="openai",
    summary="Create a chat completion",
    examples={"smallest": {"model": "agent/support", "messages": [{"role": "user", "content": "hello"}]}},
    answers={200: ("The completion; with `stream`, its chunks.", OpenAiCompletion)},
    problems=(
        "idempotency_key_reused", "run_not_found", "pending_action", "tenant_erased", *AGENT_PROBLEMS,
        "unknown_price", "no_agent", "empty_input", "unsupported_content", "invalid_history", "invalid_time",
        "too_many_runs", "tenant_queue_full", "store_nearly_full", "not_durable", "too_many_watchers",
    ),
    also={EVENT_STREAM: {"schema": {"description": "Chunks, and `[DONE]`."}}},
    audited=False,
)  # fmt: skip
async def create_chat_completion(
    backend: Backend,
    caller: Caller,
    connection: HTTPConnection,
    kind: Annotated[str, Offers((JSON, EVENT_STREAM))],
    key: IdempotencyKey,
    body: ChatCreate,
) -> Response:
    """A run is begun for it, in a conversation of its own, and cancelled if its client goes, unless `run` has
    `on_disconnect` as `continue`. An agent's own tools stay hidden; a call of a tool of the request ends it."""
    operations.admit_watcher(backend)
    run = await _begun(backend, caller, body, key)
    headers = {"X-Run-Id": run.id, "Location": below_root(f"/v1/runs/{run.id}")}
    keeps = body.run is not None and body.run.on_disconnect == "continue"
    if body.stream:
        return ChatStream(backend, caller, run, body, keeps=keeps, headers=headers)
    run = await _while_there(backend, caller, run, cast(Request, connection), keeps=keeps)
    if not keeps and not run.status.terminal and run.status is not RunStatus.REQUIRES_ACTION:
        # The process is to end, or there is no place for one who waits.
        await let_go(backend, caller, run, "its client cannot be answered any more")
    problem = await refusal_of(backend, caller, run)
    if problem is not None:
        status, error = problem
        told = {"error": {**error, "request_id": request_id_of(connection)}}
        return answer_json(orjson.dumps(told), status, {**headers, "x-should-retry": "false"})
    return answer_json(orjson.dumps(await completion_of(backend, caller, run)), headers=headers)


async def _begun(backend: Backend, caller: Caller, body: ChatCreate, key: str | None) -> Run:
    if body.n not in (None, 1):
        raise Refused.of_faults([FieldError("/n", "unsupported_option", "must be 1: a run has one answer")])
    given = read_chat(body.messages)
    if given.answers:
        why = "answers a call that is not among the messages before"
        raise Refused.of_faults([FieldError("/messages", "invalid_history", why)])
    fields = body.model_dump(mode="json")
    for place, tool in enumerate(fields.get("tools") or ()):
        if is_elsewhere(tool):
            raise Refused.of_faults([FieldError(f"/tools/{place}", "unsupported_option", _ONLY_IN_RESPONSES)])
    options = {**options_of(fields), **chat_options(fields)}
    agent, writers = await agent_of(body.model, options, "\n\n".join(given.instructions) or None, backend, caller)
    submission = submission_of(body, agent, given.messages, {MODEL: body.model})
    return (await submit(backend, caller, submission, key, writers)).run


async def _while_there(backend: Backend, caller: Caller, run: Run, request: Request, *, keeps: bool) -> Run:
    """Wait until a run has ended or waits for the client; cancel it if the client is gone before."""
    waiting = asyncio.create_task(await_end(backend, run, _LONGEST))
    left = asyncio.create_task(gone(request.receive))
    try:
        await asyncio.wait([waiting, left], return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        if not keeps:
            await let_go(backend, caller, run, "its client is gone")
        return run
    finally:
        await end(waiting, left)
