"""The routes that run: a new turn, answers to what a run waits for, or a look at a thread after a lost connection."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from starlette.responses import Response

from api.http.audit import detail, only_read
from api.http.headers import EVENT_STREAM
from api.kit.projections import written
from api.kit.signatures import AgentInPath
from palaver import operations
from palaver.errors import IdempotencyMismatch, Refused, UnknownConversation, UnknownRun
from palaver.operations import Backend, Caller
from palaver.operations.admission import AGENT_PROBLEMS
from palaver.schemas.actions import ApprovalDecision, Item, QuestionAnswer, ToolOutput
from palaver.schemas.models import Run, Submission
from palaver.vocabulary.ids import is_id
from palaver.vocabulary.lifecycle import RunStatus

from .dialect import AG_UI, PREFIX, conversation_of_thread
from .following import stream_of
from .frames import STREAM, VERSION
from .messages import said_in, snapshot_of
from .wire import News, RunAgentInput, answer_to_question, client_tools_in, news_in, user_message

_ASIDE: Final = "It was put aside."
_RUN: Final = "ag_ui.run_id"
_SAID: Final = "ag_ui.said_to"
"""Keys of the metadata of a run: the client's name of it, and the run to which its words were said."""
_WITHOUT_ANSWER: Final = (RunStatus.FAILED, RunStatus.EXPIRED, RunStatus.CANCELLED)
_EXAMPLE: Final[dict[str, Any]] = {
    "threadId": "thread-1",
    "runId": "run-1",
    "messages": [{"id": "m-1", "role": "user", "content": "Where is my order?"}],
    "tools": [],
    "context": [],
    "forwardedProps": {},
}
_ROUTE: Final[dict[str, Any]] = {
    "scope": ("runs:submit", "runs:act", "actions:approve", "runs:read"),
    "keeps_to": True,
    "tag": "ag_ui",
    "answers": {200: ("The run, as it goes on.", None)},
    "problems": (
        "idempotency_key_reused", "run_not_found", "conversation_not_found", "conversation_busy", "pending_action",
        "conversation_changed", "conversation_full", "queue_full", "steering_full", "tenant_erased", *AGENT_PROBLEMS,
        "unknown_price", "empty_input", "unsupported_content", "invalid_history", "too_many_runs", "tenant_queue_full",
        "store_nearly_full", "not_durable", "too_many_watchers", "run_ended", "unknown_action", "no_pending_action",
        "action_already_resolved", "action_expired", "wrong_action", "second_person_required", "not_to_be_edited",
        "invalid_arguments",
    ),
    "also": {EVENT_STREAM: STREAM},
}  # fmt: skip


@AG_UI.route(
    "POST",
    PREFIX,
    summary="Run the agent of the thread, or the one that forwardedProps name",
    examples={"a message": {**_EXAMPLE, "forwardedProps": {"agent": "support"}}},
    **_ROUTE,
)
async def run(backend: Backend, caller: Caller, body: RunAgentInput) -> Response:
    """As with an agent in the path; without one the thread goes on with its own."""
    named = None if body.forwardedProps is None else body.forwardedProps.agent
    return await _served(backend, caller, named, body)


@AG_UI.route(
    "POST",
    f"{PREFIX}/agents/{{name}}",
    summary="Run an agent",
    examples={
        "a message": _EXAMPLE,
        "an approval": {
            **_EXAMPLE,
            "runId": "run-2",
            "resume": [
                {
                    "interruptId": f"run_00{'0' * 26}:act_0123456789abcdef01234567",
                    "status": "resolved",
                    "payload": {"approved": True},
                }
            ],
        },
    },
    **_ROUTE,
)
async def run_agent(backend: Backend, caller: Caller, name: AgentInPath, body: RunAgentInput) -> Response:
    """The messages behind the last answer decide: words of the user are a new turn, results of the
    client's tools are answers, as those in `resume` are; with neither, the thread is shown and its run followed. The
    same `runId` again starts nothing more."""
    return await _served(backend, caller, name, body)


async def _served(backend: Backend, caller: Caller, agent: str | None, body: RunAgentInput) -> Response:
    operations.admit_watcher(backend)
    conversation_id = conversation_of_thread(backend, body.threadId)
    await operations.keep_to_named(backend, caller, conversation_id)
    news = news_in(body)
    answered = await _answer(backend, caller, conversation_id, news)
    if answered is not None:
        settled, run = answered
        if news.said and await _run_with(backend, caller, conversation_id, body, news) is None:
            await _say(backend, caller, conversation_id, agent, body, news, on_conflict="steer")
        return await stream_of(backend, caller, body, run, answers=settled, again=not settled)
    if news.said:
        taken = await _say_or_repeat(backend, caller, conversation_id, agent, body, news)
        return await stream_of(backend, caller, body, taken.run, again=taken.replayed)
    return await _look(backend, caller, conversation_id, body)


async def _say(
    backend: Backend,
    caller: Caller,
    conversation_id: str,
    agent: str | None,
    body: RunAgentInput,
    news: News,
    *,
    before: Run | None = None,
    **how: Any,
) -> operations.Taken:
    """Take what the user says on, once. If it was said to a run ``before``, another one answers it; what was taken back
    since is said anew."""
    operations.require_scope(caller, "runs:submit")
    again = None if before is None or before.withdrawn else before
    submission = Submission(
        agent=agent,
        input=(user_message(news.said),) if again is None else (),
        client_tools=client_tools_in(body),
        metadata={_RUN: body.runId, **({} if again is None else {_SAID: again.metadata.get(_SAID, again.id)})},
        **how,
    )
    words, request = _keys(conversation_id, body, news)
    key = words if before is None else request if again is None else f"{request} again {again.id}"
    return await operations.submit_to_named(backend, conversation_id, submission, caller, key=key)


def _keys(conversation_id: str, body: RunAgentInput, news: News) -> tuple[str, str]:
    """Return the keys under which the words may have been taken on: that of the message, if it has an id, and that of
    the request."""
    request = f"ag_ui {conversation_id} {body.runId}"
    return request if news.name is None else f"ag_ui {conversation_id} said {news.name}", request


async def _say_or_repeat(
    backend: Backend, caller: Caller, conversation_id: str, agent: str | None, body: RunAgentInput, news: News
) -> operations.Taken:
    """Take what the user says on, once: a message that comes again with its id is answered with its run. If that came
    to no answer, another run answers what was said, unless it is the same request that comes again."""
    operations.require_scope(caller, "runs:submit")
    run = await _run_with(backend, caller, conversation_id, body, news)
    if run is None:
        try:
            return await _say(backend, caller, conversation_id, agent, body, news)
        except IdempotencyMismatch:
            # The same words came in another request at the same moment.
            run = await _run_with(backend, caller, conversation_id, body, news)
            if run is None:
                raise
    if run.status in _WITHOUT_ANSWER and run.metadata.get(_RUN) != body.runId:
        newest = (await operations.read_conversation(backend, conversation_id)).newest_run
        if run.withdrawn or newest == run.id:
            return await _say(backend, caller, conversation_id, agent, body, news, before=run)
    return operations.Taken(run, replayed=True)


async def _run_with(
    backend: Backend, caller: Caller, conversation_id: str, body: RunAgentInput, news: News
) -> Run | None:
    """Return the newest run that was to answer these words, if there was one."""
    keys = _keys(conversation_id, body, news)
    run = await operations.run_begun_with(backend, keys, caller, beside=conversation_id)
    if run is None or run.status not in _WITHOUT_ANSWER:
        return run
    newest = (await operations.read_conversation(backend, conversation_id)).newest_run
    with suppress(UnknownRun):
        latest = await operations.read_run(backend, newest or run.id)
        return latest if latest.metadata.get(_SAID) == run.id else run
    return run


async def _answer(
    backend: Backend, caller: Caller, conversation_id: str, news: News
) -> tuple[frozenset[str], Run] | None:
    """Bring the answers to their run; return the actions of theirs that it waited for. None if they are results of the
    server's own tools, or their run is gone, and the user has said something behind them."""
    if not news.answers:
        return None
    if len(news.answers) > 1:
        raise Refused.at("/resume", "has answers to several runs of the thread: one goes on at a time")
    ((run_id, answers),) = news.answers.items()
    try:
        run = await _run_of(backend, conversation_id, run_id)
    except Refused:
        if not news.said or news.resumed:
            raise
        # Results of old calls stand in the thread for ever, and their run may have been deleted.
        return None
    waiting = operations.answered_actions(run, answers) & {action.id for action in run.all_pending}
    if not waiting and news.said:
        return None
    if waiting:
        answers = _fitting(run, answers, news)
        detail(run=run.id, items=sorted({item.type for item in answers.values()}))
        run = await operations.answer_run(backend, run.id, answers, caller)
    else:
        only_read()
        operations.require_scope(caller, "runs:read", "runs:act", "actions:approve")
    return waiting, run


def _fitting(run: Run, answers: Mapping[str, Item], news: News) -> Mapping[str, Item]:
    """Return the answers in the form that the actions take: a call of a client's tool cannot be denied.

    Raises:
        Refused: what is to answer a call is the form of a question.
    """
    fitting = dict(answers)
    for action in run.all_pending:
        item = answers.get(action.id)
        if action.type == "question" and action.id in news.resumed:
            fitting[action.id] = answer_to_question(news.resumed[action.id], action.id)
        elif isinstance(item, QuestionAnswer):
            raise Refused.at("/resume", "must have a payload with approved, true or false, or with output")
        elif action.type == "client_tool" and isinstance(item, ApprovalDecision):
            fitting[action.id] = ToolOutput(
                type="tool_output", call_id=action.id, output=item.reason or _ASIDE, is_error=True
            )
    return fitting


async def _run_of(backend: Backend, conversation_id: str, run_id: str) -> Run:
    """Return a run of the thread.

    Raises:
        Refused: it is none.
    """
    if is_id("run", run_id):
        try:
            run = await operations.read_run(backend, run_id)
        except UnknownRun:
            run = None
        if run is not None and run.conversation_id == conversation_id:
            return run
    raise Refused.at("/resume", "answers something that no run of this thread waits for")


async def _look(backend: Backend, caller: Caller, conversation_id: str, body: RunAgentInput) -> Response:
    """Show the thread, and follow the run that is going on in it."""
    only_read()
    operations.require_scope(caller, "runs:read")
    try:
        active = (await operations.read_conversation(backend, conversation_id)).active_run
        run = None if active is None else await operations.read_run(backend, active)
    except (UnknownConversation, UnknownRun):
        run = None
    if run is not None:
        return await stream_of(backend, caller, body, run, again=True)
    ids = {"threadId": body.threadId, "runId": body.runId}
    shown = await snapshot_of(backend, conversation_id, said_in(body.messages))
    events = [
        {"type": "RUN_STARTED", **ids, "protocolVersion": VERSION},
        *([shown] if shown is not None else ()),
        {"type": "RUN_FINISHED", **ids, "outcome": {"type": "success"}},
    ]
    return Response(written(events), 200, {"Cache-Control": "no-cache"}, media_type=EVENT_STREAM)
