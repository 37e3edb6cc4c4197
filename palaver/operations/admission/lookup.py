"""Station 2: what a request is judged by is looked up, once for all agents of its tree, and handed on as one value."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from palaver.late import dataclass
from palaver.operations.admission.tree import NO_MODELS, AgentModels, AgentTree
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.operations.catalog import KnownTools
from palaver.schemas.models import Budget, Message, Retry, Run, Submission
from palaver.steps.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class Standing:
    """The conversation or the run that a request goes on with."""

    kind: str
    tree: AgentTree | None
    """The tree of its agent, if it has one."""
    budget: Budget | None = None
    seen_agent: str | None = None
    """The agent of a conversation, which may get another one meanwhile, as the text of `StandingAgent`."""


@dataclass(frozen=True, slots=True)
class Known:
    """All that a request is judged by."""

    tree: AgentTree | None
    """The agents of the request itself."""
    policies: Mapping[str, RetryPolicy]
    endpoint_hosts: Collection[str]
    """The hosts at which an agent may have an endpoint of its own."""
    mcp_hosts: Collection[str]
    """The hosts at which an agent may have MCP servers of its own."""
    seals: bool
    """True if there is a key to encrypt secrets with."""
    tools: KnownTools | None
    """The tools of the workers; None if no worker has told of any yet, or no agent has any."""
    callable_providers: frozenset[str] | None
    """The providers that a worker can call; empty if none has reported lately, None if some do not report theirs."""
    standing: Standing | None = None
    """The thing that it goes on with; looked at only if the request is judged by its agent."""

    @property
    def answering(self) -> AgentTree | None:
        """The tree of the agent that answers: of the request's own, or of the one that stands."""
        return self.tree if self.tree is not None or self.standing is None else self.standing.tree

    @property
    def models(self) -> AgentModels:
        """The models of the agent that answers; none if it was not looked at."""
        answering = self.answering
        return NO_MODELS if answering is None else answering.models

    @property
    def owner(self) -> str:
        """The thing that has the agent, if the request has none."""
        return "" if self.tree is not None or self.standing is None else self.standing.kind

    @property
    def lacks(self) -> str | None:
        """The thing that a run waits for, as in ``waiting``, if no worker is there."""
        answering = self.answering if self.callable_providers == frozenset() else None
        return None if answering is None else f"provider:{answering.agent.provider}"


def is_governed(backend: Backend, caller: Caller) -> bool:
    """Tell whether an agent has to be allowed: without rules, and with a key for any agent, each may run."""
    return bool(backend.policy.rules) or caller.agents is not None


def has_parts(input: str | Sequence[Message]) -> bool:
    """Tell whether an input is more than text, which every model can be sent."""
    return not isinstance(input, str) and any(not isinstance(message.content, str) for message in input)


def needs_prices(budget: Budget | None) -> bool:
    """Tell whether a budget is one in dollars."""
    return budget is not None and budget.cost_usd is not None


async def look_up_submission(submission: Submission, tree: AgentTree | None, backend: Backend, caller: Caller) -> Known:
    """Return what a submission is judged by. Most need no look at the agent that the conversation has.

    Raises:
        UnknownConversation: it depends on the agent of a conversation that is not there.
        StoreUnavailable: the store took too long.
    """
    known = await look_up(tree, backend)
    if tree is not None or submission.conversation_id is None:
        return known
    looks = known.callable_providers == frozenset() or needs_prices(submission.budget) or has_parts(submission.input)
    if not looks and not is_governed(backend, caller):
        return known
    return replace(known, standing=await standing_conversation(submission.conversation_id, backend))


async def look_up_retry(run_id: str, body: Retry, tree: AgentTree | None, backend: Backend, caller: Caller) -> Known:
    """Return what a retry or a fork of a run is judged by.

    Raises:
        UnknownRun: it depends on a run that is not there.
        StoreUnavailable: the store took too long.
    """
    known = await look_up(tree, backend)
    if not is_governed(backend, caller) and (tree is not None or not needs_prices(body.budget)):
        return known
    run = await within_deadline(backend.store.runs.get(run_id))
    return replace(known, standing=standing_run(run, backend))


async def look_up(tree: AgentTree | None, backend: Backend) -> Known:
    """Return what the agents of a tree may name. Only what they need is read from the store.

    Raises:
        StoreUnavailable: the store took too long.
    """
    tools: list[str] = []
    providers: list[str] = []
    needs_tools = False
    for node in () if tree is None else tree.nodes:
        tools += [name for name in node.agent.tools if name not in node.agent.subagents]
        providers += [model.partition("/")[0] for model in node.agent.models]
        needs_tools = needs_tools or bool(tools or node.agent.mcp_servers)
    return Known(
        tree=tree,
        policies=backend.policies,
        endpoint_hosts=backend.settings.inline_provider_hosts,
        mcp_hosts=backend.settings.inline_mcp_hosts,
        seals=backend.store.vault.usable,
        tools=await within_deadline(backend.catalog.tools(tools)) if needs_tools else None,
        callable_providers=await within_deadline(backend.catalog.providers(providers)),
    )


async def standing_conversation(conversation_id: str, backend: Backend) -> Standing:
    """Return a conversation that a request goes on with.

    Raises:
        UnknownConversation, StoreUnavailable: it cannot be looked at.
    """
    standing = await within_deadline(backend.store.runs.agent_of(conversation_id))
    tree = None if standing.spec is None else AgentTree(standing.spec, backend.providers)
    return Standing("conversation", tree, seen_agent=standing.text)


def standing_run(run: Run, backend: Backend) -> Standing:
    """Return a run as one that a request goes on with."""
    return Standing("run", AgentTree(run.agent, backend.providers), run.budget)
