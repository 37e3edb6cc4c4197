"""What begins a conversation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal
from uuid import UUID, uuid4

from pydantic import Field

from palaver.errors import Fault, Refused
from palaver.schemas.conversation import NewConversation
from palaver.schemas.models import AgentSpec
from palaver.schemas.stuck_limits import StuckLimits

from .agents import GivenAgent, spec_of
from .client_tools import GivenClientTool, client_tools_of
from .confirmation import Policy
from .content import GivenContent
from .fields import Known, refusing
from .generations import Generation
from .secrets import GivenSecret
from .state import Kept


class FirstMessage(Known):
    """A message to begin with."""

    role: Literal["user"] = "user"
    content: GivenContent
    run: bool = True


class Thresholds(Known):
    """When a run counts as stuck."""

    action_observation: int = Field(default=4, ge=2, le=100)
    action_error: int = Field(default=3, ge=1, le=99)
    alternating_pattern: int = Field(default=6, ge=2, le=100)

    def limits(self) -> StuckLimits:
        """The same here: the model is told once before the run ends for errors."""
        return StuckLimits(
            same_result=self.action_observation,
            nudge_after=self.action_error,
            same_error=self.action_error + 1,
            alternation=self.alternating_pattern,
        )


class _Context(Known):
    """The secrets that come with an agent."""

    secrets: dict[str, GivenSecret] | None = None


class StartConversation(Known):
    """A conversation to begin."""

    agent: dict[str, Any]
    conversation_id: UUID | None = None
    initial_message: FirstMessage | None = None
    max_iterations: int = Field(default=500, ge=1)
    stuck_detection: bool = True
    stuck_detection_thresholds: Thresholds = Thresholds()
    workspace: dict[str, Any] = Field(default={})
    tool_module_qualnames: dict[str, str] = Field(default={})
    client_tools: list[GivenClientTool] | None = None
    tags: dict[str, str] | None = None
    plugins: list[dict[str, Any]] | None = None
    hook_config: dict[str, Any] | None = None
    secrets: dict[str, GivenSecret] = Field(default={})
    confirmation_policy: Policy = Policy()
    security_analyzer: dict[str, Any] | None = None
    title: str | None = None

    @property
    def generation(self) -> Generation:
        """That of the client which sends this."""
        return Generation.of_fields(self.model_fields_set)

    def given_agent(self) -> GivenAgent:
        """The agent as it is described.

        Raises:
            Refused: everything that does not fit.
        """
        with refusing("/agent"):
            return GivenAgent.model_validate(self.agent)

    def spec(self) -> AgentSpec:
        """The agent here.

        Raises:
            Refused: everything that is asked for and that there is not.
        """
        if faults := list(self._faults()):
            raise Refused.of_faults(faults)
        return spec_of(
            self.given_agent(),
            max_iterations=self.max_iterations,
            stuck=self.stuck_detection_thresholds.limits() if self.stuck_detection else None,
            client_tools=client_tools_of(self.client_tools or ()),
            policy=self.confirmation_policy,
            analyzed=self.security_analyzer is not None,
        )

    def conversation(self) -> NewConversation:
        """The conversation to begin, under an id of its own if none is chosen."""
        number, agent = self.conversation_id or uuid4(), self.spec()
        secrets = {**self._of_context(), **self.secrets}
        with refusing(named={"metadata": "tags"}):
            return NewConversation(
                id=str(number), agent=agent, title=self.title, metadata=self.tags or {}, secrets=secrets
            )

    def kept(self) -> Kept:
        """What clients want back."""
        return Kept(
            generation=self.generation,
            agent=self.agent,
            max_iterations=self.max_iterations,
            stuck_detection=self.stuck_detection,
            workspace=self.workspace or {"kind": "LocalWorkspace", "working_dir": "workspace"},
            tool_module_qualnames=self.tool_module_qualnames,
            policy=self.confirmation_policy,
            analyzer=self.security_analyzer,
        )

    def _of_context(self) -> dict[str, GivenSecret]:
        with refusing("/agent/agent_context"):
            return _Context.model_validate(self.agent.get("agent_context") or {}).secrets or {}

    def _faults(self) -> Iterator[Fault]:
        refused = {
            "plugins": "there are no plugins here: name tools of this server in agent.tools",
            "hook_config": "there are no hooks here",
        }
        for name, why in refused.items():
            if getattr(self, name):
                yield Fault(f"/{name}", "unsupported_option", why)
