"""Responses: create, retrieve, cancel, delete, and their input."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import Field, WithJsonSchema
from starlette.requests import HTTPConnection
from starlette.responses import Response

from api.http.answers import answer, answer_json
from api.http.audit import detail
from api.http.headers import EVENT_STREAM, JSON, IdempotencyKey, Offers
from api.http.queries import AnyQuery, MaybeSequence
from api.http.requests import below_root
from palaver import operations
from palaver.errors import StateConflict
from palaver.operations import Backend, Caller, Until
from palaver.operations.admission import AGENT_PROBLEMS
from palaver.vocabulary.lifecycle import RunStatus

from .creating import await_end
from .dialect import OPENAI, ResponseInPath
from .ids import ResponseId
from .paging import ItemsQuery, page_of
from .repeating import RetryCount, begin_once
from .states import read_response, response_object, status_of
from .streaming import STREAMS, ResponseEvents
from .tables import STATUSES
from .wire import OpenAiDeleted, OpenAiItemList, OpenAiResponse, ResponseCreate

_PATIENCE: Final = 600.0
"""Seconds that clients wait for an answer, unless they say otherwise."""
_SPARE: Final = 10.0
"""Seconds before that at which a response is answered that goes on: a client that gave up would create another one."""


class ResponseQuery(AnyQuery):
    """The choice between the response and its stream."""

    # Clients in Python write True; generators make names of an enum's members, which are then the same.
    stream: Annotated[
        Literal["true", "false", "True", "False", "1", "0"] | None, WithJsonSchema({"enum": ["true", "false"]})
    ] = Field(default=None, description="`true`: its events, as they come.")
    starting_after: MaybeSequence = Field(
        default=None, description="With `stream`: only events behind this `sequence_number`."
    )


@OPENAI.route(
    "POST",
    "/openai/v1/responses",
    scope="runs:submit",
    keeps_to=True,
    tag="openai",
    summary="Create a response",
    examples={
        "smallest": {"model": "fake/tool-20", "input": "hello", "background": True},
        "an agent on the server": {"model": "agent/support", "input": "Where is my order?", "background": True},
        "go on": {"previous_response_id": "resp_00" + "0" * 26, "input": "and then?"},
        "in a conversation": {
            "model": "fake/tool-20",
            "conversation": "conv_00" + "0" * 26,
            "input": "hello",
            "background": True,
        },
        "answer": {
            "previous_response_id": "resp_00" + "0" * 26,
            "input": [{"type": "function_call_output", "call_id": "call_1", "output": "sunny"}],
        },
        "approve": {
            "previous_response_id": "resp_00" + "0" * 26,
            "input": [{"type": "mcp_approval_response", "approval_request_id": "act_1", "approve": True}],
        },
    },
    answers={200: ("The response; with `background`, as it begins.", OpenAiResponse)},
    problems=(
        "idempotency_key_reused", "run_not_found", "conversation_busy", "pending_action", "unknown_action",
        "action_already_resolved", "action_expired", "conversation_changed", "conversation_full", "queue_full",
        "nothing_to_answer", "tenant_erased", "conversation_not_found", *AGENT_PROBLEMS, "unknown_price", "no_agent",
        "empty_input",
        "unsupported_content", "invalid_history", "invalid_time", "too_many_runs", "tenant_queue_full",
        "store_nearly_full", "not_durable", "too_many_watchers",
    ),
    also=STREAMS,
    audited=False,
)  # fmt: skip
async def create_response(
    backend: Backend,
    caller: Caller,
    connection: HTTPConnection,
    kind: Annotated[str, Offers((JSON, EVENT_STREAM))],
    key: IdempotencyKey,
    count: RetryCount,
    body: ResponseCreate,
) -> Response:
    """Once it is created, it ends by itself, whatever happens to this connection. Without `background`, the answer
    comes when it is whole, or just before the client would give up: then it goes on."""
    if body.stream:
        operations.admit_watcher(backend)
    begun = await begin_once(backend, caller, body, key, count)
    headers = {"Location": below_root(f"/v1/runs/{begun.run.id}")}
    if begun.answers:
        detail(answers=begun.response.part, run=begun.run.id)
    if body.stream:
        return ResponseEvents(backend, begun.response, begun.run)
    if body.background and not begun.replayed and not begun.answers:
        run = begun.run
        shown = response_object(begun.response, run, STATUSES[run.status])
    elif body.background:
        shown = await shown_response(backend, begun.response)
    else:
        await await_end(backend, begun.run, _patience(connection))
        shown = await shown_response(backend, begun.response)
    return answer_json(orjson.dumps(shown), headers=headers)


def _patience(connection: HTTPConnection) -> float:
    """Return the seconds for which a client waits, less what it takes to answer."""
    try:
        said = float(connection.headers.get("x-stainless-read-timeout", ""))
    except ValueError:
        said = _PATIENCE
    return max(min(said, _PATIENCE) - _SPARE, 1.0) if said > 0 else _PATIENCE - _SPARE


async def shown_response(backend: Backend, response: ResponseId) -> dict[str, Any]:
    """Return a response as it is now.

    Raises:
        UnknownRun: there is no such response (any more).
    """
    run, projection = await read_response(backend, response)
    return response_object(response, run, status_of(run, projection), projection)


@OPENAI.route(
    "GET",
    "/openai/v1/responses/{response_id}",
    scope="runs:read",
    tag="openai",
    summary="Retrieve a response, or stream it",
    answers={200: ("The response as it is now.", OpenAiResponse)},
    problems=("run_not_found", "invalid_cursor", "too_many_watchers"),
    also=STREAMS,
)
async def retrieve_response(
    backend: Backend,
    response_id: ResponseInPath,
    kind: Annotated[str, Offers((JSON, EVENT_STREAM))],
    query: ResponseQuery,
) -> Response:
    """With `stream`, all its events from the first one, or those behind `starting_after`, and the rest as they come.
    Their numbers are the same each time."""
    if query.stream is None or query.stream.lower() in ("false", "0"):
        return answer_json(orjson.dumps(await shown_response(backend, response_id)))
    operations.admit_watcher(backend)
    run = await operations.read_run(backend, response_id.run_id)
    stream = ResponseEvents(backend, response_id, run)
    if query.starting_after is not None:
        await stream.go_behind(query.starting_after)
    else:
        await _see_that_it_began(backend, response_id)
    return stream


async def _see_that_it_began(backend: Backend, response: ResponseId) -> None:
    """See that a run that is there has come to this part of it, if it is not the first one.

    Raises:
        UnknownRun: it has not.
    """
    if response.part:
        await read_response(backend, response)


@OPENAI.route(
    "POST",
    "/openai/v1/responses/{response_id}/cancel",
    scope="runs:act",
    tag="openai",
    summary="Cancel a response",
    answers={200: ("The response: cancelled, or about to be, or as it ended before.", OpenAiResponse)},
    problems=("run_not_found", "not_durable", "agent_not_allowed"),
)
async def cancel_response(backend: Backend, caller: Caller, response_id: ResponseInPath) -> Response:
    """Any response can be cancelled. Asking again changes nothing, and one that has ended stays as it is."""
    await _see_that_it_began(backend, response_id)
    try:
        run = await operations.cancel(backend, response_id.run_id, caller)
    except StateConflict:
        run = await operations.read_run(backend, response_id.run_id)
    if run.status is RunStatus.CANCELLING:
        await operations.await_run(backend, run, Until.TERMINAL, _SPARE)
    return answer_json(orjson.dumps(await shown_response(backend, response_id)))


@OPENAI.route(
    "DELETE",
    "/openai/v1/responses/{response_id}",
    scope="runs:act",
    tag="openai",
    summary="Delete a response",
    answers={200: ("It is gone.", OpenAiDeleted)},
    problems=("run_not_found", "run_active", "not_durable", "agent_not_allowed"),
)
async def delete_response(backend: Backend, caller: Caller, response_id: ResponseInPath) -> Response:
    """Forget a response that has ended, with its run, its events and its messages."""
    await _see_that_it_began(backend, response_id)
    await operations.delete_run(backend, response_id.run_id, caller)
    return answer(OpenAiDeleted(id=str(response_id), object="response"))


@OPENAI.route(
    "GET",
    "/openai/v1/responses/{response_id}/input_items",
    scope="runs:read",
    tag="openai",
    summary="List the input of a response",
    answers={200: ("A page of items.", OpenAiItemList)},
    problems=("run_not_found", "invalid_cursor"),
)
async def list_input_items(backend: Backend, response_id: ResponseInPath, query: ItemsQuery) -> Response:
    """The items that this response was created with; those of responses before it are in their conversation."""
    _, projection = await read_response(backend, response_id)
    return answer(page_of(projection.input, query))
