"""Calls of the tools, as use cases."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from starlette.requests import HTTPConnection

from api.http.audit import detail, only_read
from api.http.problems import problem_of
from api.http.requests import request_id_of
from api.kit.lenient import refusing
from palaver import operations
from palaver.errors import (
    FieldError,
    IdempotencyMismatch,
    NoRoom,
    Refused,
    StateConflict,
    TimePassed,
    UnknownAgent,
    UnknownConversation,
    UnknownRun,
)
from palaver.events import UNDER_WAY
from palaver.operations import Backend, Caller, Until
from palaver.schemas.actions import ALL, ApprovalDecision, Item, QuestionAnswer, ToolOutput
from palaver.schemas.models import Run, Submission
from palaver.vocabulary.limits import KIB

from .arguments import AgentArguments, Answer, AnswerArguments, CancelArguments, GetArguments, StartArguments, read
from .states import answer_of, refusal_of, state_of, task_of
from .tables import INVALID_PARAMS, PROBLEMS
from .tools import TOOLS, agent_of
from .wire import IDEMPOTENCY, ClientSide, RpcFault

_EVENTS: Final = 100
_EVENT_BYTES: Final = 128 * KIB
_PLACES: Final = {"/input": "/message", "/conversation_id": "/conversation"}
_REFUSED: Final = (
    Refused, StateConflict, NoRoom, IdempotencyMismatch, TimePassed, UnknownRun, UnknownConversation, UnknownAgent,
)  # fmt: skip
"""What a tool may answer with, in the place of a state."""


class McpCall:
    """A call of a tool, of a caller."""

    def __init__(self, backend: Backend, caller: Caller, connection: HTTPConnection, client: ClientSide) -> None:
        self._backend = backend
        self._caller = caller
        self._connection = connection
        self._client = client
        self._retention = backend.settings.retention
        self.started: str | None = None
        """The run that it has started."""

    async def of(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of ``tools/call``.

        Raises:
            RpcFault: there is no such tool.
            InsufficientScope: the key is not for it.
        """
        name, arguments = params.get("name"), params.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise RpcFault(INVALID_PARAMS, "params need a name, and arguments that are an object")
        try:
            return await self._called(name, arguments, params.get("_meta"))
        except _REFUSED as error:
            problem = problem_of(_moved(error), request_id_of(self._connection))
            refusal = PROBLEMS[problem.code].refusal
            if refusal is None:
                raise
            only_read()
            return refusal_of(problem, refusal, self._client)

    async def _called(self, name: str, arguments: dict[str, Any], meta: Any) -> dict[str, Any]:
        tool = TOOLS.get(name)
        if tool is None:
            agent = await agent_of(self._backend, self._caller, name)
            if agent is None:
                raise _no_tool()
            return await self._ask(agent, read(AgentArguments, arguments, self._backend), meta)
        operations.require_scope(self._caller, *tool.scopes)
        match read(tool.arguments, arguments, self._backend):
            case StartArguments() as start:
                return await self._start(start.agent, start, meta)
            case GetArguments() as get:
                return await self._get(get)
            case AnswerArguments() as answers:
                return await self._answer(answers)
            case CancelArguments() as cancel:
                return await self._cancel(cancel)
        raise LookupError(name)

    async def _ask(self, agent: str, arguments: AgentArguments, meta: Any) -> dict[str, Any]:
        try:
            return await self._start(agent, arguments, meta)
        except Refused as refused:
            if refused.code == "unknown_agent":
                raise _no_tool() from None
            raise

    async def _start(self, agent: str | None, arguments: AgentArguments, meta: Any) -> dict[str, Any]:
        submission = Submission(agent=agent, input=arguments.message, conversation_id=arguments.conversation)
        key = arguments.idempotency_key or _key_in(meta, arguments, self._backend)
        taken = await operations.submit(self._backend, submission, self._caller, key=key)
        run, self.started = taken.run, taken.run.id
        if arguments.wait_s and operations.may_watch(self._backend):
            run = await operations.await_run(self._backend, run, Until.ACTION, arguments.wait_s)
        if self._client.tasks:
            return {"resultType": "task", **task_of(run, self._retention, self._client)}
        return self._state(run)

    async def _get(self, arguments: GetArguments) -> dict[str, Any]:
        only_read()
        await keep_to(self._backend, self._caller, arguments.run_id)
        until, seconds, after = Until.ACTION, arguments.wait_s, arguments.after
        run = await operations.read_run(self._backend, arguments.run_id)
        if after is None:
            if seconds:
                run = await operations.read_run(self._backend, run.id, until=until, seconds=seconds)
            return self._state(run)
        if seconds and run.last_event_id <= after:
            run = await operations.read_run(self._backend, run.id, until=Until.CHANGE, seconds=seconds)
        page = await operations.read_events(self._backend, run.id, after, _EVENTS)
        shown: list[Any] = []
        reached, size = after, 0
        for event in page.events:
            text = event.to_json() if event.type not in UNDER_WAY else b""
            if shown and size + len(text) > _EVENT_BYTES:
                break
            size, reached = size + len(text), event.seq
            if text:
                shown.append(orjson.loads(text))
        else:
            reached = page.reached
        more = page.more or reached < page.reached
        return self._state(run, events=shown, next_after=reached, more_events=more)

    async def _answer(self, arguments: AnswerArguments) -> dict[str, Any]:
        run_id, items = arguments.run_id, _items(arguments.answers)
        await keep_to(self._backend, self._caller, run_id)
        note_answers("run_answer", run_id, items)
        key = _key_of(run_id, items, self._caller)
        acted = await operations.act(self._backend, run_id, items, self._caller, key=key)
        return self._state(acted.run)

    async def _cancel(self, arguments: CancelArguments) -> dict[str, Any]:
        await keep_to(self._backend, self._caller, arguments.run_id)
        detail(tool="run_cancel", run=arguments.run_id, mode="now")
        return self._state(await operations.cancel(self._backend, arguments.run_id, self._caller))

    def _state(self, run: Run, **more: Any) -> dict[str, Any]:
        return answer_of({**state_of(run, self._retention), **more}, self._client)


async def keep_to(backend: Backend, caller: Caller, run_id: str) -> None:
    """See that a caller who is held to one conversation means a run of it.

    Raises:
        UnknownRun: there is none of this id there.
    """
    if caller.conversation is not None:
        await operations.keep_to_run(backend, caller, run_id)


def note_answers(tool: str, run_id: str, items: Sequence[Item]) -> None:
    """Note for the audit which kinds of answers a run gets."""
    kinds = [" ".join(filter(None, (item.type, getattr(item, "decision", None)))) for item in items]
    detail(tool=tool, run=run_id, items=kinds)


def _key_of(run_id: str, items: list[Item], caller: Caller) -> str | None:
    """Return the key under which the same answers again change nothing. None where they are about whatever waits: the
    next time that is something else."""
    if any(isinstance(item, ApprovalDecision) and item.action_id == ALL for item in items):
        return None
    said = orjson.dumps([run_id, caller.identity, *(item.model_dump(mode="json") for item in items)])
    return f"mcp:{hashlib.sha256(said).hexdigest()}"


def _items(answers: Sequence[Answer]) -> list[Item]:
    """Return the answers as a run takes them.

    Raises:
        Refused: one of them does not fit.
    """
    items: list[Item] = []
    for at, answer in enumerate(answers):
        with refusing(f"/answers/{at}"):
            items.append(_item(answer))
    return items


def _item(answer: Answer) -> Item:
    if answer.decision is not None:
        return ApprovalDecision(
            type="approval", action_id=answer.action_id, decision=answer.decision, reason=answer.reason
        )
    if answer.response is not None:
        return QuestionAnswer(
            type="answer", action_id=answer.action_id, response=answer.response, content=answer.content
        )
    return ToolOutput(type="tool_output", call_id=answer.action_id, output=answer.content, is_error=answer.is_error)


def _key_in(meta: Any, arguments: AgentArguments, backend: Backend) -> str | None:
    """Return the idempotency key that a host has put beside the arguments."""
    if not isinstance(meta, dict) or IDEMPOTENCY not in meta:
        return None
    fields = {"message": arguments.message, "idempotency_key": meta[IDEMPOTENCY]}
    return read(AgentArguments, fields, backend).idempotency_key


def _moved(error: Exception) -> Exception:
    """Return a refusal with the places of its faults as the arguments have them."""
    if isinstance(error, Refused) and error.faults:
        moved = [
            FieldError(_PLACES.get(fault.pointer, fault.pointer), fault.code, fault.message) for fault in error.faults
        ]
        return Refused(error.code, faults=moved, run_id=error.run_id)
    return error


def _no_tool() -> RpcFault:
    return RpcFault(INVALID_PARAMS, "There is no such tool.", "not_found")
