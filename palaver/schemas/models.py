"""The main models of the wire: agent specs, messages and runs.

Requests are strict (an unknown field or a string where a number belongs is an error that names the field);
answers carry every field, null where there is nothing to say.
"""

from __future__ import annotations

from datetime import datetime
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, FailFast, Field, field_validator, model_validator

from palaver.errors import ErrorClassName, ErrorObject
from palaver.schemas.actions import Approvals, ClientTool, PendingAction, PendingBelow
from palaver.schemas.content import Content, text_of
from palaver.schemas.current_steps import CurrentStep
from palaver.schemas.endpoints import Endpoint
from palaver.schemas.family import ChildRun, ParentRun
from palaver.schemas.fields import (
    AgentReference,
    AsItCame,
    AtMost,
    DataModel,
    Metadata,
    ModelName,
    SecretName,
    SecretText,
    Strict,
    Tag,
    Tags,
    ToolReference,
)
from palaver.schemas.mcp_servers import McpServers
from palaver.schemas.model_options import ModelOptions
from palaver.schemas.stuck_limits import StuckLimits
from palaver.vocabulary.lifecycle import RunStatus, StopReason, WaitReason
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.step_kinds import USUAL_PRIORITY


class Budget(Strict):
    """The most that a run may use.

    The script that makes the next call ready looks at it, and the model calls of a run come one after another: nothing
    else takes from the budget in between. A call is not begun once nothing is left, so the last one may go beyond
    ``tokens`` and ``cost_usd``. The tool calls of a turn are taken from the budget together, before any of them begins.
    """

    tokens: int | None = Field(default=None, ge=1)
    """Input and output tokens of all model calls, as the providers report them."""
    cost_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """US dollars for all model calls; every model of the agent needs a price. A call of unknown cost ends the run."""
    tool_calls: int | None = Field(default=None, ge=1)
    """A turn that asks for more than are left ends the run; none of its calls is started."""
    seconds: float | None = Field(default=None, gt=0, le=366 * 86400)
    """Seconds from the run's start to its end, waits included. Work that is under way then is stopped."""


class Subagent(Strict):
    """An agent that another one has as a tool."""

    agent: AgentSpec
    budget: Budget | None = None
    """The most that each of its runs may use; with what the operator's policy allows, the least of both."""


class AgentSpec(ModelOptions):
    """An agent: the model, its instructions and options, and the tools that it may ask for."""

    model: ModelName
    endpoint: Endpoint | None = None
    """The address of the models ``inline/NAME``; all others are of providers that the operator has set up."""
    name: Tag | None = None
    """Your name for this agent, to find its runs by; of an agent on the server, the name that it has there."""
    version: int | None = Field(default=None, ge=1)
    """The version of an agent on the server. Runs say it; a request names such an agent as ``name@version``."""
    instructions: Annotated[str, AtMost("instructions")] = ""
    """The system message; empty for none."""
    description: Annotated[str, AtMost("tool_description")] | None = None
    """A description for the models that have the agent as a tool. Without one they see its first instructions."""
    tools: Annotated[tuple[ToolReference, ...], AtMost("agent_tools")] = ()
    """Names of server tools, in the order in which the model sees them. ``agent:NAME``, or ``agent:NAME@VERSION``, is
    an agent on the server: its calls are runs of it. A run says ``agent_NAME`` instead, as its model does."""
    subagents: dict[str, Subagent] = Field(default={})
    """The agents among ``tools``, by the names that the model has for them. Those on the server are filled in, in the
    versions that they had when the run was submitted. An agent that is not there stands here in the request, under a
    name ``agent_…`` that is among ``tools``."""
    client_tools: Annotated[tuple[ClientTool, ...], AtMost("agent_tools")] = ()
    """Tools that the client runs; the model sees them behind the server's."""
    mcp_servers: McpServers = Field(default={})
    """MCP servers of the agent's own, by labels. The model sees their tools, as ``LABEL__TOOL``, behind all others."""
    approvals: Approvals = Approvals()
    max_steps: int = Field(default=100, ge=1, le=10_000)
    """Model calls that one run may make."""
    max_tool_result: int | None = Field(default=None, ge=limit_of("tool_result_least"), le=limit_of("tool_result"))
    """Characters of a tool's result that the model sees at most, of every tool: the beginning and the end of a longer
    one. None leaves it to the tools; 30,000 where they say nothing."""
    stream: bool = True
    """True if the provider is asked to stream; watchers see deltas only if so."""
    condense: bool = True
    """True if the older part of a conversation that is too long for the model is replaced by a summary of it."""
    condense_at: int | None = Field(default=None, ge=1000)
    """Input tokens of a call beyond which the next one is condensed; None waits until the model refuses."""
    condense_at_messages: int | None = Field(default=None, ge=10)
    """Messages beyond which a call is condensed, as its protocol counts them; at most half of them stay."""
    stuck: StuckLimits | None = StuckLimits()
    """The limits at which a run that repeats itself ends; None for no limit."""
    fallbacks: Annotated[tuple[ModelName, ...], AtMost("fallbacks")] = ()
    """Models to go on with, in this order, where a retry rule says ``fallback_model``."""
    retry: str | dict[str, Any] | None = None
    """The policy for retries of model calls: the name of a policy of ``PALAVER_RETRY_POLICIES``, or a policy in place
    whose rules go before the default ones (docs/reference/errors.md). A run keeps what its name meant when it was
    submitted."""

    @property
    def models(self) -> tuple[str, ...]:
        """The model and its fallbacks by the names of their providers, in the order in which they are asked."""
        named = (self.model, *self.fallbacks)
        return named if self.endpoint is None else tuple(map(self.endpoint.called, named))

    @property
    def provider(self) -> str:
        """The part of ``model`` before the first slash."""
        return self.model.partition("/")[0]

    @property
    def model_name(self) -> str:
        """The provider's own name of the model."""
        return self.model.partition("/")[2]


class WithAgent(Strict):
    """A body that says which agent answers."""

    agent: AgentSpec | AgentReference | None = None
    """A whole agent, or the name of one on the server: ``support``, or ``support@7`` for a version."""

    @property
    def spec(self) -> AgentSpec | None:
        """The agent, once a name has been looked up.

        Raises:
            LookupError: it is still a name.
        """
        if isinstance(self.agent, str):
            raise LookupError(f"the agent was not looked up: {self.agent}")
        return self.agent


NewSecrets = Annotated[dict[SecretName, SecretText | None], AtMost("secrets")]
"""Secrets by name; None removes one."""
CancelMode = Literal["graceful", "now", "rollback"]
OnConflict = Literal["enqueue", "reject", "interrupt", "rollback", "steer"]


class ToolCall(DataModel):
    """A call that the model asked for. ``arguments`` is the JSON text as the model wrote it: it may be invalid."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: str
    name: str
    arguments: str = "{}"


class Message(DataModel):
    """One entry of a conversation that a model sees.

    ``user`` and ``assistant`` carry ``content``, a text or a list of parts; an assistant message may carry
    ``tool_calls``; a ``tool`` message answers one call by ``call_id`` and says with ``is_error`` whether the call
    failed.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    role: Literal["user", "assistant", "tool"]
    content: Content = ""
    tool_calls: Annotated[tuple[ToolCall, ...], FailFast()] = ()
    call_id: str | None = None
    name: str | None = None
    is_error: bool = False
    partial: bool = False
    """True if the answer was cut off: it is stored as far as it came."""

    @field_validator("tool_calls", mode="before")
    @classmethod
    def _json_arrays_are_tuples(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @property
    def text(self) -> str:
        """The text of ``content``."""
        return text_of(self.content)


class Usage(DataModel):
    """Tokens and calls, counted from what the providers report, and what they cost."""

    input_tokens: int = 0
    cached_tokens: int = 0
    """Input tokens that came from the provider's prompt cache."""
    cache_write_tokens: int = 0
    """Input tokens that were put into it, where the provider says so."""
    output_tokens: int = 0
    reasoning_tokens: int = 0
    """Output tokens that the model thought with, where the provider says so."""
    model_calls: int = 0
    tool_calls: int = 0
    cost_usd: float | None = None
    """US dollars, by the prices in ``PALAVER_PROVIDERS``; None when the cost of any call is unknown."""


class RunCount(DataModel):
    """The number of runs in each status."""

    statuses: dict[RunStatus, int]
    complete: bool = Field(default=True, exclude_if=bool)
    """False: of what an archive has, the newest were counted alone, so there are more. Absent if all were."""


class Waiting(DataModel):
    """Why the run does not go on right now."""

    reason: WaitReason
    until: datetime | None = None
    run_id: str | None = None
    """The run ahead, with ``conversation_busy``; with ``agent_run`` that of the other agent."""
    attempt: int | None = None
    """The attempt that will be next, with ``backoff``."""
    error_class: ErrorClassName | None = None
    code: str | None = None
    """The reason in a word. With ``provider_cooldown`` ``cooldown``, or the limit that is reached; or ``outage``, with
    the ``error_class`` of the last failure. With ``no_worker`` the thing that is lacked: ``tool:NAME``,
    ``provider:NAME`` or ``key:VARIABLE``; ``refused_key:PROVIDER``, whose key the provider refuses; or ``queue:NAME``,
    from which no worker takes. With ``tenant_limit`` the cap. With ``service_cooldown`` the ``limit_key`` of the
    service and what a provider's code says: ``crm:cooldown``, ``crm:max_in_flight``, ``crm:requests_per_minute`` or
    ``crm:outage``. With ``store`` why that takes no writes: ``memory``, ``disk``, ``replica`` or ``replicas``."""
    position: int | None = None
    """The place of its step among those of the tenant that wait, from 1; with ``max_in_flight``."""


class Cancellation(DataModel):
    """The cancel of a run: the name of the key that asked for it, and how long it took."""

    requested_at: datetime
    by: str | None = None
    """The key that asked, by its name in ``PALAVER_API_KEYS``; None without keys."""
    mode: CancelMode
    reason: str | None = None
    acked_ms: int = 0
    """Milliseconds from the arrival of the request to its acknowledgement, from which on the cancel holds."""
    stopped_ms: int | None = None
    """Milliseconds from the request to the terminal status."""


class RunTimes(DataModel):
    """The times of a run; UTC."""

    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    deadline: datetime
    start_by: datetime | None = None
    start_after: datetime | None = None


class Run(DataModel):
    """One execution of the agent over a conversation, from an input to a stop."""

    id: str
    conversation_id: str
    status: RunStatus
    stop_reason: StopReason | None = None
    waiting: Waiting | None = None
    current_steps: tuple[CurrentStep, ...] = ()
    """Its open steps, those that a worker has first; 16 at most."""
    current_step_count: int = 0
    """All of its open steps."""
    pending_actions: tuple[PendingAction, ...] = ()
    """Calls that wait for a decision or a client's output, in call order."""
    pending_below: tuple[PendingBelow, ...] = ()
    """Such calls of its children and of those below them, 100 at most. They are answered there, or on this run."""
    pausing: bool = False
    """A pause is asked for; it holds once nothing is under way any more."""
    withdrawn: bool = False
    """True if it was rolled back: models do not see its messages any more."""
    submitted_by: str | None = None
    """The name of the key that submitted it; with a token that has a subject, ``key/subject``; None without keys."""
    retried_from: str | None = None
    """The run that this one goes on with, or is a fork of."""
    retried_as: str | None = None
    """The run that goes on with this one; a fork does not."""
    parent: ParentRun | None = None
    """The run whose call began this one; it ends with that at the latest."""
    children: tuple[ChildRun, ...] = ()
    """Runs of other agents that calls of this one began, in that order."""
    agent: AgentSpec
    model: str
    """The model that is asked now: the agent's, or one of its fallbacks."""
    step: int = 0
    """The model step that the run is at; 0 before the first."""
    attempt: int = 0
    """The attempt of that step."""
    input_preview: str | None = None
    """The first words of the user's last message in its input; None if there are none."""
    output: str | None = None
    """The text of the last assistant message, or what a tool ended the run with, once it has ended."""
    structured_output: Any = None
    """The output as JSON, if the run completed and its agent's ``response_format`` asks for it."""
    error: Annotated[ErrorObject, AsItCame] | None = None
    """Set on every failed run, and on no other."""
    incomplete_details: Annotated[ErrorObject, AsItCame] | None = None
    """Facts about an answer that the provider withheld, if that ended the run (``content_filter``)."""
    cancel: Cancellation | None = None
    usage: Usage = Usage()
    times: RunTimes
    last_event_id: int = 0
    trace_id: str | None = None
    """The trace that it is in; None if tracing was off when it was submitted."""
    budget: Budget | None = None
    priority: int = USUAL_PRIORITY
    """Among the runs of its tenant, from 0 (first) to 9, where steps have to wait for their turn."""
    metadata: dict[str, str] = Field(default={})
    tags: tuple[str, ...] = ()
    archived: bool = Field(default=False, exclude_if=not_)
    """True if it has come from the archive, and nothing was changed since: it had left Redis. Absent if it has not."""

    @property
    def needs_somebody(self) -> bool:
        """True if it goes on only after an approval, a client's output or a resume."""
        return self.status is RunStatus.PAUSED or bool(self.all_pending)

    @property
    def all_pending(self) -> tuple[PendingAction, ...]:
        """The calls that wait for an action: its own, and those below it that it shows."""
        return (*self.pending_actions, *self.pending_below)


class Submission(WithAgent):
    """The body of ``POST /v1/runs``. Only ``agent`` (or the conversation's own) and ``input`` are needed."""

    agent: AgentSpec | AgentReference | None = None
    """A whole agent, or the name of one on the server: ``support``, or ``support@7`` for a version. May be left out
    when the conversation has one."""
    client_tools: Annotated[tuple[ClientTool, ...], AtMost("agent_tools")] = ()
    """Tools that this client runs, beside those of the agent, which goes with them in the request. A tool that the
    agent has by the same name stays the agent's."""
    input: Annotated[str | tuple[Message, ...], AtMost("input_text", items="input_messages")]
    """The user's words, or messages to add to the conversation (whole turns only)."""
    conversation_id: str | None = None
    """Go on with this conversation; None begins a new one."""
    on_conflict: OnConflict = "enqueue"
    """The action if the conversation is busy: wait behind its runs (refused while one waits for a person or a client),
    be refused, cancel them (and with ``rollback`` withdraw their messages), or put the input into the active one."""
    start_after: datetime | None = None
    start_by: datetime | None = None
    """Expire if it has not begun by then."""
    deadline: datetime | None = None
    """Expire if it has not ended by then; default: ``PALAVER_RUN_DEADLINE`` from its start."""
    budget: Budget | None = None
    priority: int = Field(default=USUAL_PRIORITY, ge=0, le=9)
    """The place among the runs of its tenant, where steps have to wait for their turn: 0 goes first, 9 last."""
    metadata: Metadata = Field(default={})
    tags: Tags = ()
    secrets: NewSecrets = Field(default={})
    """Secrets that the conversation has from now on, for tools; null removes one."""


class Retry(WithAgent):
    """The body of ``POST /v1/runs/{id}/retry``: how to go on with a run that has ended, or from where to fork it.

    A field that is left out is as it was in that run.
    """

    from_step: int | None = Field(default=None, ge=1)
    """Fork: a new conversation with everything before this model step, and a run in it that repeats the step."""
    input: Annotated[str, AtMost("input_text"), Field(min_length=1)] | None = None
    """With ``from_step``: the user's words at the end of the new conversation."""
    budget: Budget | None = None
    deadline: datetime | None = None
    """Expire if it has not ended by then; default: ``PALAVER_RUN_DEADLINE`` from its start."""

    @model_validator(mode="after")
    def _fits(self) -> Retry:
        if self.input is not None and self.from_step is None:
            raise ValueError("input goes with from_step: without it, the run goes on where it stopped")
        return self
