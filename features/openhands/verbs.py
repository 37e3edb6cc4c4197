"""Verbs: a POST below a conversation that does one use case, and answers with its result, or that it is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, Final

from pydantic import BaseModel, Field
from starlette.responses import Response

from api.kit.lenient import LenientModel
from palaver import operations
from palaver.late import dataclass
from palaver.operations import Backend, Caller
from palaver.operations.admission import AGENT_PROBLEMS
from palaver.vocabulary.scopes import Scope

from . import steering
from .creating import fork_conversation
from .dialect import OPENHANDS, ConversationUuid, OpenHandsSettings
from .followers import caught_up
from .wire import AgentAnswer, ConversationInfo, GeneratedTitle, OpenHandsSuccess, done, plain

_LONGEST_QUESTION: Final = 100_000
_TITLE_PROMPT: Final = (
    "Give this conversation a title of at most {most} characters that says what the user wants, in the language of the "
    "user. Answer with the title alone: one line, without quotes."
)
_RUN_PROBLEMS: Final = (
    "conversation_not_found", "conversation_busy", "nothing_to_answer", "no_agent", "too_many_runs",
    "tenant_queue_full", "queue_full",
    "conversation_full", "store_nearly_full", "not_durable", "conversation_moved_on", "conversation_changed",
    "second_person_required", "policy_violation", "agent_not_allowed",
)  # fmt: skip
_POLICY_PROBLEMS: Final = (
    "conversation_not_found", "conversation_revised", "store_nearly_full", "not_durable", "policy_violation",
    "agent_not_allowed",
)  # fmt: skip
_CHANGE_PROBLEMS: Final = (
    "conversation_not_found", "conversation_revised", "store_nearly_full", "not_durable", "agent_not_allowed",
)  # fmt: skip
_QUESTION_PROBLEMS: Final = (
    *AGENT_PROBLEMS, "conversation_not_found", "conversation_changed", "conversation_full", "no_answer", "empty_input",
    "too_many_runs", "tenant_queue_full", "too_many_watchers", "store_nearly_full", "not_durable",
)  # fmt: skip
_FORK_PROBLEMS: Final = (
    "conversation_not_found", "unknown_position", "no_secret_key", "secrets_broken", "store_nearly_full", "not_durable",
    "agent_not_allowed",
)  # fmt: skip
_CONDENSE_PROBLEMS: Final = (
    "conversation_not_found", "conversation_busy", "conversation_full", "nothing_to_condense", "no_agent", "no_answer",
    "too_many_runs",
    "tenant_queue_full", "too_many_watchers", "store_nearly_full", "not_durable", "policy_violation",
    "agent_not_allowed",
)  # fmt: skip
_PAUSED: Final = "Paused, or over, or waiting for somebody already."
_FROM_NEXT_RUN: Final = "It holds from the next run on."


class AgentQuestion(LenientModel):
    """A question beside the conversation."""

    question: str = Field(min_length=1, max_length=_LONGEST_QUESTION)


class TitleOptions(LenientModel):
    """Options of a title."""

    max_length: int = Field(default=50, ge=1, le=200)


async def ask_agent(
    backend: Backend, caller: Caller, conversation: ConversationUuid, body: AgentQuestion
) -> dict[str, str]:
    """It knows all that was said, and answers without its tools. The conversation has no trace of it."""
    id = operations.conversation_of(backend, conversation)
    patience = backend.setting(OpenHandsSettings).patience
    reply = await operations.ask(backend, id, body.question, caller, seconds=patience)
    return {"response": reply.answer}


async def generate_title(
    backend: Backend, caller: Caller, conversation: ConversationUuid, body: TitleOptions
) -> dict[str, str]:
    """The agent's own model is asked, whichever the client names."""
    id = operations.conversation_of(backend, conversation)
    question = _TITLE_PROMPT.format(most=body.max_length)
    patience = backend.setting(OpenHandsSettings).patience
    reply = await operations.ask(backend, id, question, caller, seconds=patience)
    return {"title": title_in(reply.answer, body.max_length)}


def title_in(answer: str, most: int) -> str:
    """Return the title in a model's answer: its first line, without quotes, cut where it is too long."""
    line = next(filter(None, map(str.strip, answer.splitlines())), "").strip("\"'`*# ")
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: its path, its use case, and their place in the document."""

    path: str
    """The path behind that of the conversation."""
    use_case: Callable[..., Awaitable[dict[str, Any] | None]]
    """The function whose parameters the request has to have, and whose docstring the document has. If it returns None,
    the answer is that it is done."""
    summary: str
    answer: str
    """A sentence of the document about the answer."""
    problems: Sequence[str]
    scope: Scope = "runs:act"
    """The scope that a key needs for it; what it does may need more."""
    model: type[BaseModel] = OpenHandsSuccess
    status: int = 200
    shown_first: bool = False
    """True if the sockets are to have the new state before the answer: programs look at it next, and have it from
    there. Not for a run: a client does not take a state that comes before this answer for the end of the run."""
    audited: bool = True

    def handler(self) -> Callable[..., Awaitable[Response]]:
        """Return the use case as a handler of a route."""

        @wraps(self.use_case)
        async def handle(backend: Backend, **arguments: Any) -> Response:
            answer = await self.use_case(backend=backend, **arguments)
            if self.shown_first:
                await caught_up(backend, operations.conversation_of(backend, arguments["conversation"]))
            return done() if answer is None else plain(answer, self.status)

        return handle


VERBS: Final = (
    Verb("events", steering.send_message, "Send a message", "Taken.",
         (*_RUN_PROBLEMS, "steering_full", "idempotency_key_reused"), "runs:submit", shown_first=True),
    Verb("run", steering.run_conversation, "Run",
         "It runs, or waits for its turn: `execution_status` is running either way.", _RUN_PROBLEMS, "runs:submit"),
    Verb("pause", steering.pause_conversation, "Pause", _PAUSED, _CHANGE_PROBLEMS, shown_first=True),
    Verb("interrupt", steering.interrupt_conversation, "Interrupt", _PAUSED, _CHANGE_PROBLEMS, shown_first=True),
    Verb("events/respond_to_confirmation", steering.respond_to_confirmation, "Decide on what waits for confirmation",
         "Decided, or nothing waited.", _RUN_PROBLEMS, "actions:approve", shown_first=True),
    Verb("confirmation_policy", steering.confirmation_policy, "Say which calls wait for confirmation",
         _FROM_NEXT_RUN, _POLICY_PROBLEMS, shown_first=True),
    Verb("security_analyzer", steering.security_analyzer, "Say what judges how risky a call is",
         _FROM_NEXT_RUN, _POLICY_PROBLEMS, shown_first=True),
    Verb("secrets", steering.set_secrets, "Set secrets", "Tools are given them from their next call on.",
         ("conversation_not_found", "no_secret_key", "secrets_full", "not_durable", "agent_not_allowed"),
         "runs:submit"),
    Verb("navigate", steering.navigate, "Go back to an event",
         "The model is told nothing any more of what came after it.",
         ("conversation_not_found", "conversation_busy", "unknown_position", "not_durable", "agent_not_allowed")),
    Verb("condense", steering.condense, "Condense a conversation",
         "A summary stands for the older part, or soon does: it is running until then.", _CONDENSE_PROBLEMS,
         "runs:submit"),
    Verb("fork", fork_conversation, "Fork a conversation", "The new one.", _FORK_PROBLEMS,
         model=ConversationInfo, status=201),
    Verb("ask_agent", ask_agent, "Ask the agent beside the conversation", "What it answered.", _QUESTION_PROBLEMS,
         "runs:submit", model=AgentAnswer, audited=False),
    Verb("generate_title", generate_title, "Ask the agent for a title",
         "The title. It is not set: that is up to the client.", _QUESTION_PROBLEMS, "runs:submit",
         model=GeneratedTitle),
)  # fmt: skip

for _verb in VERBS:
    OPENHANDS.route(
        "POST",
        f"/openhands/api/conversations/{{conversation}}/{_verb.path}",
        scope=_verb.scope,
        tag="openhands",
        summary=_verb.summary,
        answers={_verb.status: (_verb.answer, _verb.model)},
        problems=_verb.problems,
        audited=_verb.audited,
    )(_verb.handler())
