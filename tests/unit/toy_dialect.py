"""A dialect as a guest would write it: other names, other errors, another stream. Mappings, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Final

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import HTTPConnection
from starlette.responses import Response

from api.http.answers import answer
from api.http.headers import LastEventId
from api.http.problems import Problem
from api.http.queries import Query
from api.kit.dialects import Dialect
from api.kit.openapi import ErrorFormat
from api.kit.signatures import InPath
from api.kit.streams import EventStream, Frames
from palaver import operations
from palaver.operations import Backend, Batches, Caller, StoredEvent
from palaver.schemas.models import AgentSpec, Run, Submission

LINES: Final = "application/x-ndjson"
_NAMES: Final = {"/agent/model": "bot", "/input": "say", "/bot": "bot", "/say": "say"}
_KINDS: Final = {"message.delta": "text", "run.finished": "end", "stream.gap": "lost"}


class ToyError(BaseModel):
    """What went wrong."""

    oops: str
    fields: list[str]


def respond(problem: Problem, request: HTTPConnection) -> Response:
    fields = [_NAMES.get(fault.pointer, fault.pointer) for fault in problem.faults]
    body = ToyError(oops=problem.code, fields=fields).model_dump_json()
    return Response(body, problem.status, {**problem.headers, "Toy-Error": problem.code}, "application/toy+json")


TOY: Final = Dialect(
    "toy", "/toy", respond, ErrorFormat("application/toy+json", "ToyError", ToyError.model_json_schema())
)
TaskId = Annotated[str, InPath("The task.")]


class Chore(BaseModel):
    """A task to begin."""

    model_config = ConfigDict(extra="forbid")
    bot: str
    say: str = Field(max_length=100)


class Task(BaseModel):
    """A task as it is now."""

    task: str
    busy: bool
    said: str | None
    watch: str


class TaskQuery(Query):
    """How long to wait for its end."""

    patience: float = Field(default=0, ge=0, le=10, description="Seconds.")


def task_of(run: Run) -> Task:
    return Task(task=run.id, busy=not run.status.terminal, said=run.output, watch=f"/toy/tasks/{run.id}/lines")


@TOY.route(
    "POST",
    "/toy/tasks",
    scope="runs:submit",
    tag="toy",
    summary="Begin",
    answers={201: ("Begun.", Task)},
    problems=("unknown_provider",),
)
async def begin(backend: Backend, caller: Caller, chore: Chore) -> Response:
    """Begin a task."""
    submission = Submission(agent=AgentSpec(model=chore.bot), input=chore.say)
    taken = await operations.submit(backend, submission, caller)
    return answer(task_of(taken.run), 201)


@TOY.route("GET", "/toy/tasks/{task}", scope="runs:read", tag="toy", summary="Look", answers={200: ("The task.", Task)})
async def look(backend: Backend, task: TaskId, query: TaskQuery) -> Response:
    """Look at a task."""
    run = await operations.read_run(backend, task, until=operations.Until.TERMINAL, seconds=query.patience)
    return answer(task_of(run))


@TOY.route(
    "POST", "/toy/tasks/{task}/stop", scope="runs:act", tag="toy", summary="Stop", answers={200: ("It stops.", Task)}
)
async def stop(backend: Backend, caller: Caller, task: TaskId) -> Response:
    """Stop a task."""
    return answer(task_of(await operations.cancel(backend, task, caller)))


@TOY.route(
    "GET",
    "/toy/tasks/{task}/lines",
    scope="runs:read",
    tag="toy",
    summary="Watch",
    answers={200: ("A line each.", None), 204: ("You have seen all.", None)},
    also={LINES: {"schema": {"type": "string"}}},
)
async def watch(backend: Backend, task: TaskId, seen: LastEventId) -> Response:
    """Watch a task."""
    batches = await operations.watch(backend, task, seen or 0)
    if batches is None:
        return Response(status_code=204)
    return EventStream(_lines(batches), backend.closing, media_type=LINES)


def line(event: StoredEvent) -> bytes:
    """An event as a line; empty for what this dialect has no word for."""
    kind = _KINDS.get(event.type)
    return b"" if kind is None else orjson.dumps([event.seq, kind, event.data.get("text", "")]) + b"\n"


_frames: Final = Frames(line)


async def _lines(batches: Batches) -> AsyncGenerator[bytes, None]:
    async with aclosing(batches):
        async for events in batches:
            yield b"".join(map(_frames.of, events)) or b"\n"
