"""New conversations: begun with an agent, or as a fork of another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal
from uuid import UUID, uuid4

from pydantic import Field
from starlette.responses import Response

from api.kit.lenient import LenientModel, refusing
from palaver import operations
from palaver.errors import FieldError, Refused
from palaver.operations import Backend, Caller
from palaver.operations.admission import AGENT_PROBLEMS
from palaver.schemas.conversation import Fork, NewConversation
from palaver.schemas.models import AgentSpec
from palaver.schemas.stuck_limits import StuckLimits
from palaver.vocabulary.ids import uuid_of

from .agents import RETRY_FIELDS, OpenHandsAgent, Policy, spec_of
from .content import OpenHandsClientTool, OpenHandsContent, OpenHandsSecret, client_tools_of, user_message
from .dialect import OPENHANDS, ConversationUuid
from .history import find_position
from .servers import servers_of
from .snapshot import NAME, load_snapshot
from .state import ClientState, Generation
from .steering import begin_unless_running
from .wire import ConversationInfo, plain


class FirstMessage(LenientModel):
    """A message to begin with."""

    role: Literal["user"] = "user"
    content: OpenHandsContent
    run: bool = True


class Thresholds(LenientModel):
    """Numbers of repetitions from which a run counts as stuck."""

    action_observation: int = Field(default=4, ge=2, le=100)
    action_error: int = Field(default=3, ge=1, le=99)
    alternating_pattern: int = Field(default=6, ge=2, le=100)

    def limits(self) -> StuckLimits:
        """Return the limits here: the model gets one warning before the run ends for errors."""
        return StuckLimits(
            same_result=self.action_observation,
            nudge_after=self.action_error,
            same_error=self.action_error + 1,
            alternation=self.alternating_pattern,
        )


class ForkConversation(LenientModel):
    """A fork to make."""

    id: UUID | None = None
    title: str | None = None
    tags: dict[str, str] | None = Field(default=None)
    from_event_id: str | None = Field(default=None, max_length=100)


class _Context(LenientModel):
    """The secrets that come with an agent."""

    secrets: dict[str, OpenHandsSecret] | None = None


class StartConversation(LenientModel):
    """A conversation to begin."""

    agent: dict[str, Any]
    conversation_id: UUID | None = None
    initial_message: FirstMessage | None = None
    max_iterations: int = Field(default=500, ge=1)
    stuck_detection: bool = True
    stuck_detection_thresholds: Thresholds = Thresholds()
    workspace: dict[str, Any] = Field(default={})
    tool_module_qualnames: dict[str, str] = Field(default={})
    client_tools: list[OpenHandsClientTool] | None = None
    tags: dict[str, str] | None = None
    plugins: list[dict[str, Any]] | None = None
    hook_config: dict[str, Any] | None = None
    secrets: dict[str, OpenHandsSecret] = Field(default={})
    confirmation_policy: Policy = Policy()
    security_analyzer: dict[str, Any] | None = None
    title: str | None = None

    @property
    def generation(self) -> Generation:
        """The generation of the client that sends this."""
        return Generation.of_fields(self.model_fields_set)

    def validated_agent(self) -> OpenHandsAgent:
        """Return the agent as it is described.

        Raises:
            Refused: everything that does not fit.
        """
        with refusing("/agent"):
            return OpenHandsAgent.model_validate(self.agent)

    def spec(self) -> AgentSpec:
        """Return the spec of the agent.

        Raises:
            Refused: everything that it asks for and that there is not here.
        """
        if faults := list(self._faults()):
            raise Refused.of_faults(faults)
        agent = self.validated_agent()
        spec = spec_of(
            agent,
            max_iterations=self.max_iterations,
            stuck=self.stuck_detection_thresholds.limits() if self.stuck_detection else None,
            client_tools=client_tools_of(self.client_tools or ()),
            policy=self.confirmation_policy,
            analyzed=self.security_analyzer is not None,
        )
        spec.model_fields_set.difference_update(self._unsaid(agent))
        return spec

    def _unsaid(self, agent: OpenHandsAgent) -> Iterator[str]:
        """Yield the fields of the spec that come from no field of the request: a rule of the operator's may fill them
        in."""
        if "confirmation_policy" not in self.model_fields_set:
            yield "approvals"
        if "max_iterations" not in self.model_fields_set:
            yield "max_steps"
        if agent.llm.model_fields_set.isdisjoint(RETRY_FIELDS):
            yield "retry"

    def conversation(self) -> NewConversation:
        """Return the conversation to begin, under an id of its own if none is chosen."""
        number, agent = self.conversation_id or uuid4(), self.spec()
        of_servers = servers_of(self.validated_agent().mcp_config).secrets
        secrets = {**self._of_context(), **self.secrets, **of_servers}
        with refusing(named={"metadata": "tags"}):
            return NewConversation(
                id=str(number), agent=agent, title=self.title, metadata=self.tags or {}, secrets=secrets
            )

    def state(self) -> ClientState:
        """Return the fields that clients want back."""
        return ClientState(
            generation=self.generation,
            agent=self.agent,
            max_iterations=self.max_iterations,
            stuck_detection=self.stuck_detection,
            workspace=self.workspace or {"kind": "LocalWorkspace", "working_dir": "workspace"},
            tool_module_qualnames=self.tool_module_qualnames,
            policy=self.confirmation_policy,
            analyzer=self.security_analyzer,
        )

    def _of_context(self) -> dict[str, OpenHandsSecret]:
        with refusing("/agent/agent_context"):
            return _Context.model_validate(self.agent.get("agent_context") or {}).secrets or {}

    def _faults(self) -> Iterator[FieldError]:
        refused = {
            "plugins": "there are no plugins here: name tools of this server in agent.tools",
            "hook_config": "there are no hooks here",
        }
        for name, why in refused.items():
            if getattr(self, name):
                yield FieldError(f"/{name}", "unsupported_option", why)


@OPENHANDS.route(
    "POST",
    "/openhands/api/conversations",
    scope="runs:submit",
    tag="openhands",
    summary="Begin a conversation",
    answers={201: ("Begun.", ConversationInfo), 200: ("It was there, and is as it was.", ConversationInfo)},
    problems=(*AGENT_PROBLEMS, "conversation_busy", "store_nearly_full", "not_durable"),
)
async def start_conversation(backend: Backend, caller: Caller, body: StartConversation) -> Response:
    """Begin a conversation with an agent, under the id that the client has chosen or one of ours."""
    first = body.initial_message
    message = None if first is None else user_message(first.content)
    begun, there = await operations.create_conversation(
        backend, body.conversation(), caller, dialect_texts={NAME: body.state().text()}
    )
    number = uuid_of(begun.id)
    if first is not None and message is not None:
        # A request that is made again finishes what the one before has left undone.
        if not begun.entries:
            await operations.append(backend, begun.id, [message], caller, key=f"first message of {number}")
        snapshot = await load_snapshot(backend, number)
        if first.run and snapshot.untouched:
            await begin_unless_running(backend, caller, snapshot)
    return plain((await load_snapshot(backend, number)).info(), 200 if there else 201)


async def fork_conversation(
    backend: Backend, caller: Caller, conversation: ConversationUuid, body: ForkConversation
) -> dict[str, Any]:
    """A conversation that begins with what this one has, up to an event if one is named."""
    snapshot = await load_snapshot(backend, conversation)
    fields: dict[str, Any] = {
        "id": body.id and str(body.id),
        "title": body.title,
        "metadata": body.tags,
        "through": await find_position(backend, snapshot, body.from_event_id, "/from_event_id"),
    }
    with refusing(named={"metadata": "tags"}):
        fork = Fork(**{name: value for name, value in fields.items() if value is not None})
    texts = {NAME: snapshot.state.changed(paused_after=None, deleted_with=None).text()}
    made, _ = await operations.fork(backend, snapshot.id, fork, caller, dialect_texts=texts)
    return (await load_snapshot(backend, uuid_of(made.id))).info()
