"""The operator's policy and the caller's key, applied to each way in which an agent comes to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from palaver.config.policy import DEFAULT_TENANT, PolicyRule, fits
from palaver.errors import FieldError
from palaver.schemas.models import AgentSpec, Budget, Retry, Run, Subagent, Submission, WithAgent
from palaver.vocabulary.ids import tenant_of

from ..backend import Backend, Caller, within_deadline
from . import money, policy
from .agents import as_it_was, refuse_other_agents
from .faults import refuse
from .resolution import resolve
from .subagents import all_of

Body = TypeVar("Body", bound=WithAgent)


def concerns(backend: Backend, caller: Caller) -> bool:
    """Tell whether anything has to be looked at: without rules, and with a key for any agent, nothing has."""
    return bool(backend.policy.rules) or caller.agents is not None


async def submission(submission: Submission, backend: Backend, caller: Caller) -> Submission:
    """Return the submission of a new run with what the policy demands.

    Raises:
        Refused: the policy or the key does not allow it.
        UnknownConversation, StoreUnavailable: the agent that it leaves out cannot be looked at.
    """
    agent, conversation_id, owner = submission.spec, submission.conversation_id, ""
    if not concerns(backend, caller):
        _check_principal(agent, caller)
        return submission
    if agent is None and conversation_id is not None:
        kept, owner = (await within_deadline(backend.store.runs.conversation(conversation_id))).agent, "conversation"
        agent = None if kept is None else as_it_was(kept)
    if agent is None:
        return submission
    governed, budget = await _governed(
        agent, submission.budget, backend, caller, given=True, owner=owner, about=conversation_id
    )
    return submission.model_copy(update=_changes(governed, agent, budget, caller, owner))


async def retry(run: Run, body: Retry, backend: Backend, caller: Caller) -> Retry:
    """Return the retry or the fork of a run with what the policy demands.

    Raises:
        Refused: the policy or the key does not allow it.
        StoreUnavailable: the store took too long.
    """
    agent, owner = (as_it_was(run.agent), "run") if body.spec is None else (body.spec, "")
    if not concerns(backend, caller):
        _check_principal(agent, caller)
        return body
    budget, given = (body.budget, True) if body.budget is not None else (run.budget, False)
    governed, budget = await _governed(agent, budget, backend, caller, given=given, owner=owner, about=run.id)
    return body.model_copy(update=_changes(governed, agent, budget, caller, owner))


async def conversation(body: Body, backend: Backend, caller: Caller) -> Body:
    """Return the body of a conversation, with what the policy demands of its agent.

    Raises:
        Refused: the policy or the key does not allow it.
        StoreUnavailable: the store took too long.
    """
    agent = body.spec
    if agent is None or not concerns(backend, caller):
        return body
    governed, _ = await _governed(agent, None, backend, caller, given=True, submits=False)
    return body if governed is agent else body.model_copy(update={"agent": governed})


async def may_name(models: Sequence[str], backend: Backend, caller: Caller) -> Sequence[str]:
    """Return those of the models that an agent in a request of the caller may have.

    Raises:
        StoreUnavailable: the store took too long.
    """
    if caller.agents is not None:
        return ()
    if not backend.policy.rules:
        return models
    tenant = await _tenant(backend, caller, None)
    return [model for model in models if _allows(backend.policy.rules_for(tenant, AgentSpec(model=model)), model)]


def _allows(rules: Mapping[str, PolicyRule], model: str) -> bool:
    return all(rule.inline_agents and (rule.models is None or fits(rule.models, model)) for rule in rules.values())


async def check(agent: AgentSpec, backend: Backend, caller: Caller) -> None:
    """Check an agent that is to be kept on the server.

    Raises:
        Refused: the policy does not allow it.
        StoreUnavailable: the store took too long.
    """
    if backend.policy.rules:
        await _governed(agent, None, backend, caller, given=True, submits=False)


async def _governed(
    agent: AgentSpec,
    budget: Budget | None,
    backend: Backend,
    caller: Caller,
    *,
    given: bool,
    owner: str = "",
    submits: bool = True,
    about: str | None = None,
) -> tuple[AgentSpec, Budget | None]:
    """Return the agent and the budget with what the rules for them demand. ``given`` says that the request gives the
    budget, ``submits`` that it is about a run, ``about`` in or behind what it is to run."""
    refuse_other_agents(agent, caller)
    rules = backend.policy.rules_for(await _tenant(backend, caller, about), agent)
    if rules:
        tools = await within_deadline(backend.catalog.tools()) if policy.needs_tools(rules) else None
        subject = policy.Subject(agent, budget, given, tools, owner)
        refuse(policy.faults(subject, rules))
        agent, budget = policy.tightened(subject, rules)
    agent = await _governed_below(agent, budget, backend, caller, submits=submits, about=about)
    if submits:
        refuse(money.faults(budget, resolve(agent, backend.providers), owner))
        _check_principal(agent, caller)
    return agent, budget


async def _governed_below(
    agent: AgentSpec, budget: Budget | None, backend: Backend, caller: Caller, *, submits: bool, about: str | None
) -> AgentSpec:
    """Return the agent with what the rules demand of those below it. Each of their runs has the budget that the rules
    for it allow, and no more than is left of that of the run above."""
    below: dict[str, Subagent] = {}
    for name, subagent in agent.subagents.items():
        before = as_it_was(subagent.agent)
        governed, own = await _governed(
            before,
            subagent.budget,
            backend,
            caller,
            given=False,
            owner=f"agent {subagent.agent.name}",
            submits=submits,
            about=about,
        )
        if submits:
            refuse(money.faults(budget, resolve(governed, backend.providers), f"agent {subagent.agent.name}"))
        if governed is not before or own != subagent.budget:
            below[name] = Subagent(agent=governed, budget=own)
    return agent.model_copy(update={"subagents": {**agent.subagents, **below}}) if below else agent


def _changes(
    governed: AgentSpec, agent: AgentSpec, budget: Budget | None, caller: Caller, owner: str
) -> dict[str, Any]:
    """Return the fields that a body is to have. An agent that it leaves out stays left out, unless the policy demands
    another one; or the key is for some agents alone: then it is the one that was looked at, whatever comes between."""
    if owner and governed is agent and caller.agents is None:
        return {"budget": budget}
    return {"agent": governed, "budget": budget}


def _check_principal(agent: AgentSpec | None, caller: Caller) -> None:
    """Check that somebody else can be told from the caller, where a second person has to approve."""
    if agent is None or caller.name is not None:
        return
    if any(each.approvals.second_person for each in all_of(agent)):
        why = "cannot be had: the caller has no key with a name, and nobody can be told to be somebody else"
        refuse([FieldError("/agent/approvals/second_person", "second_person_required", why)])


async def _tenant(backend: Backend, caller: Caller, about: str | None) -> str:
    """Return the name that rules have for a tenant: that of what an operator asks about, else the caller's."""
    tag = caller.tenant if about is None else tenant_of(about)
    if not tag:
        return DEFAULT_TENANT
    tenant = await within_deadline(backend.store.tenants.by_tag(tag))
    return tag if tenant is None else tenant.name
