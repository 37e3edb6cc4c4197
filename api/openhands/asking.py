"""What the agent's model is asked beside the runs of a client: a question, a title, a summary."""

from __future__ import annotations

from typing import Final

from pydantic import Field
from starlette.responses import Response

from palaver.errors import StateConflict
from palaver.vocabulary.lifecycle import RunStatus

from .. import operations
from ..operations import Backend, Caller, Until
from ..operations.admission import AGENT_PROBLEMS
from .answers import AgentAnswer, GeneratedTitle, OpenHandsSuccess, done, plain
from .dialect import OPENHANDS, ConversationUuid
from .fields import Known
from .looking import look

_PLACE: Final = "/openhands/api/conversations/{conversation}"
_PATIENCE: Final = 50.0
"""Seconds that a model may take: older clients wait for a minute, whatever they ask."""
_LONGEST_QUESTION: Final = 100_000
_TITLE_WANTED: Final = (
    "Give this conversation a title of at most {most} characters that says what the user wants, in the language of the "
    "user. Answer with the title alone: one line, without quotes."
)
_ASKING_PROBLEMS: Final = (
    *AGENT_PROBLEMS, "conversation_not_found", "conversation_changed", "conversation_full", "no_answer", "empty_input",
    "too_many_runs", "too_many_watchers", "store_nearly_full", "not_durable",
)  # fmt: skip


class AgentQuestion(Known):
    """What to ask beside the conversation."""

    question: str = Field(min_length=1, max_length=_LONGEST_QUESTION)


class TitleWanted(Known):
    """What the title is to be."""

    max_length: int = Field(default=50, ge=1, le=200)


@OPENHANDS.route(
    "POST",
    f"{_PLACE}/ask_agent",
    tag="openhands",
    summary="Ask the agent beside the conversation",
    answers={200: ("What it answered.", AgentAnswer)},
    problems=_ASKING_PROBLEMS,
    audited=False,
)
async def ask_agent(
    backend: Backend, caller: Caller, conversation: ConversationUuid, wanted: AgentQuestion
) -> Response:
    """It knows all that was said, and answers without its tools. The conversation has no trace of it."""
    id = operations.conversation_of(backend, conversation)
    asked = await operations.ask(backend, id, wanted.question, caller, seconds=_PATIENCE)
    return plain({"response": asked.answer})


@OPENHANDS.route(
    "POST",
    f"{_PLACE}/generate_title",
    tag="openhands",
    summary="Ask the agent for a title",
    answers={200: ("The title. It is not set: that is up to the client.", GeneratedTitle)},
    problems=_ASKING_PROBLEMS,
)
async def generate_title(
    backend: Backend, caller: Caller, conversation: ConversationUuid, wanted: TitleWanted
) -> Response:
    """The agent's own model is asked, whichever the client names."""
    id = operations.conversation_of(backend, conversation)
    question = _TITLE_WANTED.format(most=wanted.max_length)
    asked = await operations.ask(backend, id, question, caller, seconds=_PATIENCE)
    return plain({"title": title_in(asked.answer, wanted.max_length)})


@OPENHANDS.route(
    "POST",
    f"{_PLACE}/condense",
    tag="openhands",
    summary="Condense a conversation",
    answers={200: ("A summary stands for the older part, or soon does: it is running until then.", OpenHandsSuccess)},
    problems=(
        "conversation_not_found", "conversation_busy", "conversation_full", "nothing_to_condense", "no_agent",
        "no_answer", "too_many_runs", "too_many_watchers", "store_nearly_full", "not_durable",
    ),
)  # fmt: skip
async def condense(backend: Backend, caller: Caller, conversation: ConversationUuid) -> Response:
    """409: the agent has no condenser, too little was said, or the conversation is running. Events stay."""
    seen = await look(backend, conversation)
    if seen.conversation.agent is not None and not seen.conversation.agent.condense:
        raise StateConflict("nothing_to_condense", None, "the agent has no condenser")
    operations.admit_watcher(backend)
    taken = await operations.condense(backend, seen.id, caller)
    run = await operations.await_run(backend, taken.run, Until.TERMINAL, _PATIENCE)
    if run.status.terminal and run.status is not RunStatus.COMPLETED:
        raise StateConflict("no_answer", run.id, run.error["message"] if run.error else "the run was stopped")
    return done()


def title_in(answer: str, most: int) -> str:
    """The title that a model has given: its first line, without quotes, cut where it is too long."""
    line = next(filter(None, map(str.strip, answer.splitlines())), "").strip("\"'`*# ")
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
