"""The input of an unfinished run: approvals, outputs of client tools, answers to questions, messages, pause and
resume."""

from __future__ import annotations

import hashlib
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints, model_validator

from palaver.schemas.fields import AtMost, DataModel, Strict, ToolName

ToolPattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_*?\[\]!-]{1,64}$")]
"""A tool's name, or a glob as in a shell: ``send_*``."""
ActionType = Literal["approval", "client_tool", "question"]
ALL: Final = "all"
"""In the place of an action's id: every approval that the run waits for."""
_MONTH: Final = 30 * 86_400


class Approvals(Strict):
    """The rule that says which calls of server tools wait for a decision."""

    require: Annotated[Literal["never", "risky", "always"] | tuple[ToolPattern, ...], AtMost("approval_patterns")] = (
        "risky"
    )
    """``risky``: tools that are declared so. Names and globs: these, and the risky ones. ``never``: not even those."""
    exempt: Annotated[tuple[ToolPattern, ...], AtMost("approval_patterns")] = ()
    """Names and globs of tools whose calls never wait, such as ``think`` and ``finish``, whatever ``require`` says."""
    exempt_alone: Annotated[tuple[ToolPattern, ...], AtMost("approval_patterns")] = ()
    """The same for a call that is the only one of its answer: beside others it waits as ``require`` says."""
    second_person: Annotated[tuple[ToolPattern, ...], AtMost("approval_patterns")] = ()
    """Names and globs of tools whose calls, where they wait, a second person approves: a key with another name than
    those who had a part in the run. Such a call is approved as it is; every key that may decide may
    deny it."""
    timeout: float = Field(default=86_400, ge=1, le=_MONTH)
    """Seconds. A call without a decision by then is denied."""

    def ask(self, tool: str, *, risky: bool, alone: bool) -> bool:
        """Tell whether a call of ``tool`` waits; ``alone`` if the model made no other call in that answer."""
        exempt = (*self.exempt, *self.exempt_alone) if alone else self.exempt
        if any(fnmatchcase(tool, pattern) for pattern in exempt):
            return False
        if isinstance(self.require, str):
            return self.require == "always" or (risky and self.require == "risky")
        return risky or any(fnmatchcase(tool, pattern) for pattern in self.require)

    def needs_second_person(self, tool: str) -> bool:
        """Tell whether a person other than the submitter has to approve a call of ``tool`` that waits."""
        return any(fnmatchcase(tool, pattern) for pattern in self.second_person)


class ClientTool(Strict):
    """A tool that the client runs: its calls wait for outputs that come in by ``/input``, unless it is acknowledged."""

    name: ToolName
    description: Annotated[str, AtMost("tool_description")] = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    """The JSON schema of the arguments, as the model sees it; the client checks them. Those of an acknowledged call are
    checked here: the model could not be told later."""
    timeout: float = Field(default=3600, ge=1, le=_MONTH)
    """Seconds. Without an output by then, the model's result says that the call timed out."""
    acknowledgement: Annotated[str, AtMost("acknowledgement"), Field(min_length=1)] | None = None
    """A result for the model at once: the client sees the call in the events and does what it likes. None for a tool
    whose output the run waits for."""


class ServerQuestion(DataModel):
    """A question of a server to a person, in the middle of a tool call."""

    asker: str
    """The server, by its name in the operator's file."""
    message: str
    form: dict[str, Any] | None = None
    """The JSON schema of the answer: an object of texts, numbers, choices and yes or no. None for a ``url``."""
    url: str | None = None
    """The address where the person is to do something. Only the person opens it, and looks at its host first."""


class PendingAction(DataModel):
    """A tool call that waits for a decision, for a client's output, or for an answer to a question."""

    id: str
    type: ActionType
    tool: str
    call_id: str
    arguments: str
    """JSON text, as the model wrote it."""
    digest: str
    """SHA-256 of the tool's name and the arguments, or of the question, hexadecimal: what a decision is about."""
    expires_at: datetime
    second_person: bool = False
    """True if a second person, who had no part in the run, has to approve the call as it is: its arguments cannot be
    changed."""
    question: ServerQuestion | None = None
    """The question, if the type is ``question``."""


class PendingBelow(PendingAction):
    """A call of a run below another one that waits so."""

    run_id: str
    """The run whose call it is."""
    path: tuple[str, ...]
    """The runs that lead down to that, and it: the first is a child of the run that shows this."""


def digest(tool: str, arguments: str) -> str:
    """The ``digest`` of a pending action."""
    return hashlib.sha256(f"{tool}\n{arguments}".encode()).hexdigest()


class ApprovalDecision(Strict):
    """A decision on calls that await an approval."""

    type: Literal["approval"]
    action_id: str = Field(max_length=200)
    """A pending action's id, or ``all``."""
    decision: Literal["approve", "deny", "edit"]
    """The decision. ``edit`` approves the call with other ``arguments``; the model sees that."""
    arguments: dict[str, Any] | None = None
    reason: Annotated[str, AtMost("deny_reason")] | None = None
    """With ``deny``: the reason, for the model."""
    digest: str | None = Field(default=None, max_length=64)
    """The digest of the action. With it the decision is about exactly the call that was looked at."""

    @model_validator(mode="after")
    def _fits(self) -> ApprovalDecision:
        if (self.decision == "edit") != (self.arguments is not None):
            raise ValueError("arguments are for the decision edit, which needs them")
        if self.action_id == ALL and (self.decision == "edit" or self.digest is not None):
            raise ValueError("arguments and digest are of one action: name its action_id")
        if self.reason is not None and self.decision != "deny":
            raise ValueError("a reason is for the decision deny")
        return self


class ToolOutput(Strict):
    """The output of a client's tool."""

    type: Literal["tool_output"]
    call_id: str = Field(max_length=200)
    """The call's id, or its pending action's."""
    output: Any = ""
    """The output. Text goes to the model as it is; anything else as JSON."""
    is_error: bool = False


class QuestionAnswer(Strict):
    """The answer to a question of a server."""

    type: Literal["answer"]
    action_id: str = Field(max_length=200)
    response: Literal["accept", "decline", "cancel"]
    """``accept`` with the form that was filled in, or the consent to a ``url``; ``decline`` says no, ``cancel``
    nothing."""
    content: dict[str, Any] | None = None
    """The form, filled in."""
    digest: str | None = Field(default=None, max_length=64)
    """The digest of the action. With it the answer is to exactly the question that was looked at."""

    @model_validator(mode="after")
    def _fits(self) -> QuestionAnswer:
        if self.content is not None and self.response != "accept":
            raise ValueError("content is for the response accept")
        if self.action_id == ALL:
            raise ValueError("each question is answered by itself: name its action_id")
        return self


class Steering(Strict):
    """A message of the user into the run: its next model call sees it."""

    type: Literal["message"]
    content: Annotated[str, AtMost("input_text"), Field(min_length=1)]


class Pause(Strict):
    """Begin nothing more until the run is resumed; work that is under way may finish."""

    type: Literal["pause"]
    now: bool = False
    """Abort a model call that is under way; resuming makes it again."""
    reason: Annotated[str, AtMost("reason")] | None = None
    """The reason, for the record of the run."""


class Resume(Strict):
    """Go on where the run was."""

    type: Literal["resume"]


class Stop(Strict):
    """End the run as cancelled, once work that is under way has finished: no model is called. With denials in the same
    request, the model sees them when the conversation goes on."""

    type: Literal["stop"]
    reason: Annotated[str, AtMost("reason")] | None = None
    """The reason, for the record of the run."""


Item = Annotated[
    ApprovalDecision | ToolOutput | QuestionAnswer | Steering | Pause | Resume | Stop, Field(discriminator="type")
]


class RunInput(Strict):
    """The body of ``POST /v1/runs/{id}/input``: all items take effect, or none."""

    items: Annotated[tuple[Item, ...], Field(min_length=1), AtMost("run_items")]
