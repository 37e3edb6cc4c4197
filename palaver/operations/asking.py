"""A question beside a conversation: it is answered with all messages of the conversation, and leaves no trace in it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from palaver.errors import PalaverError, StateConflict
from palaver.operations.admission import as_it_was
from palaver.operations.backend import Backend, Caller
from palaver.operations.control import cancel
from palaver.operations.conversations import delete_conversation, read_conversation
from palaver.operations.history import fork
from palaver.operations.submitting import submit
from palaver.operations.waiting import Until, admit_watcher, await_run
from palaver.schemas.conversation import Fork, SideAnswer
from palaver.schemas.models import AgentSpec, Budget, Run, Submission
from palaver.vocabulary.lifecycle import RunStatus

_LETTING_GO = 5.0
"""Seconds for the end of a run that has not answered in time."""


async def ask(backend: Backend, conversation_id: str, question: str, caller: Caller, *, seconds: float) -> SideAnswer:
    """Return the answer of the conversation's agent to ``question``: one model call, without its tools. The call is
    made in a fork, which is deleted again; if this process dies meanwhile, the fork goes when its retention is over.

    Raises:
        Refused: the conversation has no agent, or one that cannot be asked any more.
        UnknownConversation: there is no such conversation (any more).
        StateConflict: ``no_answer``, with the reason; as ``fork`` and ``submit``.
        NoRoom, NotDurable, StoreUnavailable: it was not asked.
    """
    admit_watcher(backend)
    agent = (await read_conversation(backend, conversation_id)).agent
    if agent is None:
        raise StateConflict("no_answer", None, "the conversation has no agent yet")
    made, _ = await fork(backend, conversation_id, Fork(agent=_without_tools(agent), title=None), caller)
    run: Run | None = None
    try:
        budget = Budget(seconds=seconds)
        submission = Submission(conversation_id=made.id, input=question, budget=budget, tags=("ask",))
        run = (await submit(backend, submission, caller)).run
        run = await await_run(backend, run, Until.TERMINAL, seconds)
    finally:
        await asyncio.shield(_forget(backend, made.id, run, caller))
    if run.status not in (RunStatus.COMPLETED, RunStatus.INCOMPLETE) or not run.output:
        why = run.error["message"] if run.error else f"none within {seconds:g} seconds"
        raise StateConflict("no_answer", None, f"the model gave no answer: {why}")
    return SideAnswer(answer=run.output, usage=run.usage)


def _without_tools(agent: AgentSpec) -> AgentSpec:
    """Return the agent for the question: it knows its tools, as the log has calls of them, and may not call one."""
    choice = "none" if agent.tools or agent.client_tools else None
    return as_it_was(agent).model_copy(update={"max_steps": 1, "tool_choice": choice, "response_format": None})


async def _forget(backend: Backend, conversation_id: str, run: Run | None, caller: Caller) -> None:
    """Delete the fork. A failure to do so is not the problem of the client who asked."""
    with suppress(PalaverError):
        if run is not None and not run.status.terminal:
            run = await cancel(backend, run.id, caller, reason="the answer is not awaited any more")
            await await_run(backend, run, Until.TERMINAL, _LETTING_GO)
        await delete_conversation(backend, conversation_id, caller)
