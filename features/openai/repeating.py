"""Requests that come again: a client sends one up to three times, and says with each how often it has, but not that
they are the same."""

from __future__ import annotations

import hashlib
import time
from typing import Annotated, Final

import orjson
from starlette.requests import Request

from api.http.headers import Header
from palaver import operations
from palaver.errors import IdempotencyMismatch, Refused, UnknownRun
from palaver.operations import Backend, Caller
from palaver.vocabulary.ids import is_id

from .begun import BegunResponse, RequestKey
from .creating import begin_response
from .ids import ResponseId
from .inputs import read_input
from .references import without_references
from .states import REQUEST
from .wire import ResponseCreate

_BUCKET: Final = 60
_REMEMBERED: Final = 10
"""Seconds of a bucket, and buckets before the present one in which a request may have come for the first time."""


def _retry_count(request: Request) -> int | None:
    count = request.headers.get("x-stainless-retry-count", "")
    return int(count) if count.isascii() and count.isdecimal() and len(count) < 3 else None


RetryCount = Annotated[
    int | None,
    Header(
        "X-Stainless-Retry-Count",
        _retry_count,
        {"type": "string"},
        "How often the client has sent this request before. The same body again finds the response that it made.",
    ),
]


async def begin_once(
    backend: Backend, caller: Caller, body: ResponseCreate, key: str | None, count: int | None
) -> BegunResponse:
    """Begin a response, as ``begin_response`` does; or find the one that the same request made before, by its key, or
    because it says that it comes again. Raises what that raises."""
    if key is not None and _beside(body) is not None and not read_input(without_references(body.input)).answers:
        return await _begin_behind(backend, caller, body, key)
    if key is not None or count is None:
        return await begin_response(backend, caller, body, RequestKey(key, chosen=True))
    said = _digest(body)
    bucket = int(time.time()) // _BUCKET
    keys = [f"openai:{said}:{bucket - before}" for before in range(_REMEMBERED + 1)]
    if count > 0:
        run = await operations.run_begun_with(backend, keys, caller, beside=_beside(body))
        if run is not None and caller.conversation in (None, run.conversation_id):
            return BegunResponse(ResponseId(run.id), run, replayed=True)
    begun: BegunResponse | None = None
    try:
        begun = await begin_response(backend, caller, body, RequestKey(keys[0], chosen=False))
    except IdempotencyMismatch:
        pass
    except Refused as refused:
        if refused.code != "run_not_found":
            raise
    if begun is None or (begun.replayed and count == 0 and not begun.answers):
        # The same words a second time, and not the same request; or what it made the first time was deleted.
        return await begin_response(backend, caller, body, RequestKey(None, chosen=False))
    return begun


async def _begin_behind(backend: Backend, caller: Caller, body: ResponseCreate, key: str) -> BegunResponse:
    """Begin a response that goes on with something, or find the one that the same key began. Behind another response it
    is looked for first: once it is there, the same request would be another submit, or of a copy."""
    chosen = RequestKey(key, chosen=True, request=_digest(body))
    if body.previous_response_id is not None:
        return await _begun_behind(backend, caller, body, chosen) or await begin_response(backend, caller, body, chosen)
    try:
        # A submit that comes again is made as durable as the first one was to be.
        return await begin_response(backend, caller, body, chosen)
    except IdempotencyMismatch:
        # What the conversation's agent is by now may make another submit of the same request.
        if begun := await _begun_behind(backend, caller, body, chosen):
            return begun
        raise


async def _begun_behind(
    backend: Backend, caller: Caller, body: ResponseCreate, key: RequestKey
) -> BegunResponse | None:
    run = await operations.run_begun_with(backend, [key.text or ""], caller, beside=_beside(body))
    if run is None or REQUEST not in run.metadata or caller.conversation not in (None, run.conversation_id):
        return None
    if run.metadata[REQUEST] != key.request:
        raise IdempotencyMismatch("this Idempotency-Key was used with another body")
    return BegunResponse(ResponseId(run.id), run, replayed=True)


def _digest(body: ResponseCreate) -> str:
    return hashlib.sha256(orjson.dumps(body.model_dump(mode="json"))).hexdigest()


def _beside(body: ResponseCreate) -> str | None:
    """Return the id of what a response goes on with, if it is one."""
    if body.previous_response_id is not None:
        try:
            return ResponseId.read(body.previous_response_id).run_id
        except UnknownRun:
            return None
    conversation_id = body.conversation_id
    return conversation_id if conversation_id is not None and is_id("conv", conversation_id) else None
