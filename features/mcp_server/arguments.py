"""The arguments of the tools, checked as the bodies of the native API are."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeVar

import orjson
from pydantic import Field, StringConstraints, model_validator

from api.http.queries import FARTHEST
from api.http.validation import validate
from palaver.operations import Backend
from palaver.schemas.fields import AgentReference, AtMost, Strict
from palaver.vocabulary.limits import KIB

A = TypeVar("A", bound="Arguments")

MOST_WAIT: Final = 25
"""Seconds: below the time after which hosts give a call up."""
RunId = Annotated[str, StringConstraints(max_length=64), Field(description="The run_id of an earlier answer.")]
Wait = Annotated[
    int,
    Field(
        ge=0,
        le=MOST_WAIT,
        description="Seconds to wait until the run has ended or needs an answer. Waiting is better than asking often.",
    ),
]
Key = Annotated[str, StringConstraints(pattern=r"^[!-~]([ -~]{0,253}[!-~])?$")]
Message = Annotated[
    str, StringConstraints(min_length=1, max_length=64 * KIB), Field(description="The words of the user.")
]


class Arguments(Strict):
    """The arguments of a tool."""


class AgentArguments(Arguments):
    """The arguments of the tool of an agent."""

    message: Message
    conversation: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        default=None, description="Go on with this conversation, which an earlier answer names; else a new one begins."
    )
    idempotency_key: Key | None = Field(
        default=None, description="The same key and arguments again start nothing more, and name the same run."
    )
    wait_s: Wait = 0


class StartArguments(AgentArguments):
    """The arguments of ``run_start``."""

    agent: AgentReference | None = Field(
        default=None,
        description="The agent, by its name on the server. May be left out if the conversation has one.",
    )


class GetArguments(Arguments):
    """The arguments of ``run_get``."""

    run_id: RunId
    after: int | None = Field(
        default=None, ge=0, le=FARTHEST, description="Also list the run's events behind this number; 0 for all of them."
    )
    wait_s: Wait = 0


class Answer(Arguments):
    """An answer to one of the run's actions."""

    action_id: Annotated[str, StringConstraints(max_length=200)] = Field(description="The action_id of the action.")
    decision: Literal["approve", "deny"] | None = Field(default=None, description="For an action of kind approval.")
    reason: Annotated[str, AtMost("deny_reason")] | None = Field(
        default=None, description="With deny: the reason, for the agent."
    )
    response: Literal["accept", "decline", "cancel"] | None = Field(
        default=None, description="For an action of kind question."
    )
    content: Any = Field(
        default=None,
        description="For an action of kind client_tool: the tool's output. With response accept: the form, filled in.",
    )
    is_error: bool = Field(default=False, description="With content: the tool failed.")

    @model_validator(mode="after")
    def _fits(self) -> Answer:
        has_content = "content" in self.model_fields_set
        if self.response is not None:
            if self.decision is not None or self.is_error or not isinstance(self.content, dict | None):
                raise ValueError("a response goes with content that is an object, and with nothing else")
        elif (self.decision is not None) == has_content:
            raise ValueError("needs either a decision, a response or content")
        if self.reason is not None and self.decision != "deny":
            raise ValueError("a reason is for the decision deny")
        if self.is_error and not has_content:
            raise ValueError("is_error goes with content")
        return self


class AnswerArguments(Arguments):
    """The arguments of ``run_answer``."""

    run_id: RunId
    answers: Annotated[tuple[Answer, ...], Field(min_length=1), AtMost("run_items")] = Field(
        description="All take effect, or none."
    )


class CancelArguments(Arguments):
    """The arguments of ``run_cancel``."""

    run_id: RunId


def read(kind: type[A], arguments: dict[str, Any], backend: Backend) -> A:
    """Return the arguments of a tool.

    Raises:
        Refused: everything that is wrong with them.
    """
    return validate(kind, orjson.dumps(arguments), arguments, backend.providers)
