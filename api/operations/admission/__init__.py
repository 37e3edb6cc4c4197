"""Admission of a request, beyond its shape: an agent's spec, its content, its history and its money.

The names and models that a request is judged by are looked up once (``resolution``). Each rule compares and yields
faults; one answer has all faults of a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TypeVar

from pydantic import SecretStr

from palaver.schemas.actions import Item
from palaver.schemas.conversation import ConversationPatch, Fork, NewConversation
from palaver.schemas.models import AgentSpec, Message, Retry, Run, Submission, WithAgent

from ..backend import Backend, Caller, within_deadline
from . import content, governing, history, items, money, own_servers, schedule, spec
from .agents import as_it_was, refuse_other_agents, refuse_other_names
from .faults import at_the_root, refuse
from .governing import may_name
from .resolution import look_up, resolve
from .spec import AGENT_PROBLEMS
from .subagents import faults_below, with_named, with_policies, with_subagents

__all__ = [
    "AGENT_PROBLEMS",
    "admit_agent",
    "admit_condensing",
    "admit_conversation",
    "admit_items",
    "admit_messages",
    "admit_retry",
    "admit_retry_of",
    "admit_secrets",
    "admit_submission",
    "as_it_was",
    "may_name",
    "refuse",
    "refuse_other_names",
]

Body = TypeVar("Body", bound=WithAgent)
OfConversation = TypeVar("OfConversation", NewConversation, Fork, ConversationPatch)


async def admit_submission(submission: Submission, backend: Backend, caller: Caller) -> tuple[Submission, str | None]:
    """Check a submission. Return it with its agent and its retry policy in the place of their names, and with what the
    operator's policy demands; and what its run waits for if no worker is there, as in ``waiting``.

    Raises:
        Refused: everything that is wrong with it.
        UnknownConversation: it depends on the agent of a conversation that is not there.
        StoreUnavailable: it is not known yet whether its tools are there.
    """
    submission = await with_named(submission, backend, caller)
    agent, conversation_id = submission.spec, submission.conversation_id
    known = await look_up(agent, backend)
    models, owner = known.models, ""
    # Most need no look at the agent that the conversation has.
    looks = money.needs_prices(submission.budget) or content.has_parts(submission.input)
    if agent is None and conversation_id is not None and looks:
        models, owner = resolve(await _agent_of(conversation_id, backend), backend.providers), "conversation"
    refuse(
        chain(
            spec.faults(agent, known) if agent is not None else spec.missing(conversation_id),
            own_servers.faults(agent, known) if agent is not None else (),
            spec.secret_faults(submission.secrets, "/secrets", seals=known.seals),
            content.faults(submission.input, models),
            money.faults(submission.budget, models, owner),
            history.faults(submission),
            schedule.faults(submission),
            await faults_below(agent, submission.budget, backend),
        )
    )
    lacks = None
    if known.callable_providers == frozenset():
        if agent is None and conversation_id is not None:
            agent = await _agent_of(conversation_id, backend)
        lacks = f"provider:{agent.provider}" if agent is not None else None
    if conversation_id is not None and submission.on_conflict == "steer":
        await _check_heard(conversation_id, backend, caller)
    return await governing.submission(_with_policy(submission, backend), backend, caller), lacks


async def admit_condensing(submission: Submission, backend: Backend, caller: Caller) -> Submission:
    """Return the submission of a run that condenses a conversation, with what the operator's policy demands.

    Raises:
        Refused: the policy, or the key of the caller, does not allow the conversation's agent.
        UnknownConversation, StoreUnavailable: its agent cannot be looked at.
    """
    return await governing.submission(submission, backend, caller)


async def admit_agent(name: str, agent: AgentSpec, backend: Backend, caller: Caller) -> None:
    """Check an agent that is to be kept on the server under that name.

    Raises:
        Refused: everything that is wrong with it, at its places in a body that is the agent; or ``agent_not_allowed``.
        StoreUnavailable: it is not known yet whether its tools are there.
    """
    refuse_other_names(name, caller)
    with at_the_root():
        whole = await with_subagents(agent, backend, caller, name)
        known = await look_up(whole, backend)
        faults = (spec.kept_faults(name, agent), spec.faults(whole, known), own_servers.faults(whole, known))
        refuse(chain(*faults, await faults_below(whole, None, backend)))
        numbered = with_policies(whole, backend).model_copy(update={"name": name, "version": 1})
        await governing.check(numbered, backend, caller)


async def admit_retry(run_id: str, body: Retry, backend: Backend, caller: Caller) -> Retry:
    """Check a retry or a fork of a run. Return it with its agent and the retry policy in the place of their names, and
    with what the operator's policy demands.

    Raises:
        Refused: everything that is wrong with it.
        UnknownRun: it depends on the agent of a run that is not there.
        StoreUnavailable: it is not known yet whether its tools are there.
    """
    body = await with_named(body, backend, caller)
    known = await look_up(body.spec, backend)
    models, owner, run = known.models, "", None
    if body.spec is None and money.needs_prices(body.budget):
        run = await within_deadline(backend.store.runs.get(run_id))
        models, owner = resolve(run.agent, backend.providers), "run"
    refuse(
        chain(
            spec.faults(body.spec, known) if body.spec is not None else (),
            own_servers.faults(body.spec, known) if body.spec is not None else (),
            money.faults(body.budget, models, owner),
            history.input_faults(body.input) if body.input is not None else (),
            schedule.faults(body),
            await faults_below(body.spec, body.budget, backend),
        )
    )
    body = _with_policy(body, backend)
    if not governing.concerns(backend, caller):
        return body
    if run is None:
        run = await within_deadline(backend.store.runs.get(run_id))
    return await governing.retry(run, body, backend, caller)


async def admit_retry_of(run: Run, backend: Backend, caller: Caller) -> Retry:
    """Return the retry of a run as it was, with what the operator's policy demands.

    Raises:
        Refused: the policy, or the key of the caller, does not allow its agent.
    """
    return await governing.retry(run, Retry(), backend, caller)


async def admit_conversation(body: OfConversation, backend: Backend, caller: Caller) -> OfConversation:
    """Check a new conversation, a fork or a change of one. Return it with its agent and the retry policy in the place
    of their names, and with what the operator's policy demands.

    Raises:
        Refused: everything that is wrong with its agent or its secrets.
        StoreUnavailable: it is not known yet whether its tools are there.
    """
    body = await with_named(body, backend, caller)
    known = await look_up(body.spec, backend)
    secrets = body.secrets if isinstance(body, NewConversation) else None
    refuse(
        chain(
            spec.faults(body.spec, known) if body.spec is not None else (),
            own_servers.faults(body.spec, known) if body.spec is not None else (),
            spec.secret_faults(secrets, "/secrets", seals=known.seals),
            await faults_below(body.spec, None, backend),
        )
    )
    return await governing.conversation(_with_policy(body, backend), backend, caller)


async def admit_messages(
    conversation_id: str, input: str | Sequence[Message], backend: Backend, caller: Caller
) -> None:
    """Check the user's messages for a conversation. One without an agent takes any: its models are not known yet.

    Raises:
        Refused: everything that is wrong with them.
        UnknownConversation, StoreUnavailable: its agent cannot be looked at.
    """
    await _check_heard(conversation_id, backend, caller)
    agent = await _agent_of(conversation_id, backend) if content.has_parts(input) else None
    refuse(
        chain(
            history.input_faults(input),
            history.role_faults(input, "must be user: these are words of the user's"),
            content.faults(input, resolve(agent, backend.providers)),
        )
    )


async def admit_items(run_id: str, inputs: Sequence[Item], backend: Backend, caller: Caller) -> None:
    """Check the items of an input. The store decides which action is meant, and whether it is still pending.

    Raises:
        Refused: everything that is wrong with them.
        UnknownRun: the arguments of a call are edited, or a form is filled in, and the run is not there.
    """
    refuse(items.faults(inputs))
    edits, fills = items.edits(inputs), items.fills_forms(inputs)
    if caller.agents is None and not edits and not fills:
        return
    run = await within_deadline(backend.store.runs.get(run_id))
    refuse_other_agents(run.agent, caller)
    if fills:
        refuse(items.form_faults(inputs, run.pending_actions))
    if edits:
        tools = await within_deadline(backend.catalog.tools())
        refuse(items.edit_faults(inputs, run.pending_actions, tools or {}, run.agent.mcp_servers))


def admit_secrets(secrets: Mapping[str, SecretStr | None], pointer: str, backend: Backend) -> None:
    """Check secrets that stand at ``pointer`` in a body.

    Raises:
        Refused: ``no_secret_key``.
    """
    refuse(spec.secret_faults(secrets, pointer, seals=backend.store.vault.usable))


async def _agent_of(conversation_id: str, backend: Backend) -> AgentSpec | None:
    return (await within_deadline(backend.store.runs.conversation(conversation_id))).agent


async def _check_heard(conversation_id: str, backend: Backend, caller: Caller) -> None:
    """Check that the caller's key is for the agent that hears what is said in a conversation now.

    Raises:
        Refused: ``agent_not_allowed``.
        UnknownConversation, StoreUnavailable: its agent cannot be looked at.
    """
    if caller.agents is None:
        return
    conversation = await within_deadline(backend.store.runs.conversation(conversation_id))
    if conversation.active_run is not None:
        refuse_other_agents((await within_deadline(backend.store.runs.get(conversation.active_run))).agent, caller)
    elif conversation.agent is not None:
        refuse_other_agents(conversation.agent, caller)


def _with_policy(body: Body, backend: Backend) -> Body:
    agent = None if body.spec is None else with_policies(body.spec, backend)
    return body if agent is body.spec else body.model_copy(update={"agent": agent})
