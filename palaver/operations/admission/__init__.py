"""Admission of a request, beyond its shape, at four stations, none of which is gone back to (ADR 0031).

Its agents are expanded to a tree (``expanding``). What they are judged by is looked up (``lookup``). Each rule yields
the faults that it finds (``judging``). The operator's rules and the caller's key are applied (``governing``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Generic, TypeVar

from pydantic import SecretStr

from palaver.errors import UnknownConversation
from palaver.late import dataclass
from palaver.operations.admission import governing, judging
from palaver.operations.admission.expanding import as_it_was, expand, expand_agent
from palaver.operations.admission.faults import AGENT_PROBLEMS, at_the_root, refuse
from palaver.operations.admission.governing import check_heard, may_name, refuse_other_agents, refuse_other_names
from palaver.operations.admission.judging import items
from palaver.operations.admission.lookup import (
    has_parts,
    is_governed,
    look_up,
    look_up_retry,
    look_up_submission,
    standing_conversation,
    standing_run,
)
from palaver.operations.admission.tree import NO_MODELS
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.schemas.actions import Item
from palaver.schemas.conversation import ConversationPatch, Fork, NewConversation
from palaver.schemas.models import AgentSpec, Message, Retry, Run, Submission

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
    "check_heard",
    "may_name",
    "refuse",
    "refuse_other_agents",
    "refuse_other_names",
]

Body = TypeVar("Body")


@dataclass(frozen=True, slots=True)
class AdmittedBody(Generic[Body]):
    """A body that was admitted, as it is carried out."""

    body: Body
    agent_by: frozenset[str] | None
    """The names of those who wrote the agent that the body gives, '' for one without; None if it gives none."""
    lacks: str | None = None
    """The thing that its run waits for if no worker is there, as in ``waiting``."""
    seen_agent: str | None = None
    """The conversation's agent that it was judged by, as in `Submit`; None if it was not looked at."""


OfConversation = TypeVar("OfConversation", NewConversation, Fork, ConversationPatch)


async def admit_submission(
    submission: Submission, backend: Backend, caller: Caller, writers: Collection[str] = ()
) -> AdmittedBody[Submission]:
    """Check a submission. Return it with its agent and its retry policy in the place of their names, and with what the
    operator's policy demands. ``writers`` are those who wrote what its agent was made of.

    Raises:
        Refused: everything that is wrong with it.
        UnknownConversation: it depends on the agent of a conversation that is not there.
        StoreUnavailable: it is not known yet whether its tools are there.
    """
    submission, tree = await expand(submission, backend, caller)
    if tree is not None and writers:
        tree = replace(tree, writers=tree.writers.union(writers))
    known = await look_up_submission(submission, tree, backend, caller)
    refuse(judging.submission_faults(submission, known))
    about = submission.conversation_id
    if about is not None and caller.agents is not None:
        with nullcontext() if submission.on_conflict == "steer" else suppress(UnknownConversation):
            await governing.check_heard(about, backend, caller)
    governed = await governing.govern_run(submission, tree, known.standing, backend, caller, about=about)
    seen = None if known.standing is None else known.standing.seen_agent
    return AdmittedBody(governed, None if tree is None else tree.writers, known.lacks, seen)


async def admit_condensing(submission: Submission, backend: Backend, caller: Caller) -> AdmittedBody[Submission]:
    """Return the submission of a run that condenses a conversation, with what the operator's policy demands.

    Raises:
        Refused: the policy, or the key of the caller, does not allow the conversation's agent.
        UnknownConversation, StoreUnavailable: its agent cannot be looked at.
    """
    about = submission.conversation_id
    if about is None or not is_governed(backend, caller):
        return AdmittedBody(submission, None)
    standing = await standing_conversation(about, backend)
    governed = await governing.govern_run(submission, None, standing, backend, caller, about=about)
    return AdmittedBody(governed, None, seen_agent=standing.seen_agent)


async def admit_agent(name: str, agent: AgentSpec, backend: Backend, caller: Caller) -> None:
    """Check an agent that is to be kept on the server under that name.

    Raises:
        Refused: everything that is wrong with it, at its places in a body that is the agent; or ``agent_not_allowed``.
        StoreUnavailable: it is not known yet whether its tools are there.
    """
    refuse_other_names(name, caller)
    with at_the_root():
        tree = await expand_agent(agent, name, backend, caller)
        known = await look_up(tree, backend)
        refuse(judging.kept_agent_faults(name, agent, known))
        numbered = tree.agent.model_copy(update={"name": name, "version": 1})
        await governing.govern_kept(replace(tree, agent=numbered), backend, caller)


async def admit_retry(run_id: str, body: Retry, backend: Backend, caller: Caller) -> AdmittedBody[Retry]:
    """Check a retry or a fork of a run. Return it with its agent and the retry policy in the place of their names, and
    with what the operator's policy demands.

    Raises:
        Refused: everything that is wrong with it.
        UnknownRun: it depends on the agent of a run that is not there.
        StoreUnavailable: it is not known yet whether its tools are there.
    """
    body, tree = await expand(body, backend, caller)
    known = await look_up_retry(run_id, body, tree, backend, caller)
    refuse(judging.retry_faults(body, known))
    if known.standing is not None and known.standing.tree is not None:
        refuse_other_agents(known.standing.tree.agent, caller)
    governed = await governing.govern_run(body, tree, known.standing, backend, caller, about=run_id)
    return AdmittedBody(governed, None if tree is None else tree.writers)


async def admit_retry_of(run: Run, backend: Backend, caller: Caller) -> Retry:
    """Return the retry of a run as it was, with what the operator's policy demands.

    Raises:
        Refused: the policy, or the key of the caller, does not allow its agent.
    """
    if not is_governed(backend, caller):
        refuse(governing.nameless_faults(run.agent, caller))
        return Retry()
    return await governing.govern_run(Retry(), None, standing_run(run, backend), backend, caller, about=run.id)


async def admit_conversation(body: OfConversation, backend: Backend, caller: Caller) -> AdmittedBody[OfConversation]:
    """Check a new conversation, a fork or a change of one. Return it with its agent and the retry policy in the place
    of their names, and with what the operator's policy demands.

    Raises:
        Refused: everything that is wrong with its agent or its secrets.
        StoreUnavailable: it is not known yet whether its tools are there.
    """
    body, tree = await expand(body, backend, caller)
    known = await look_up(tree, backend)
    secrets = body.secrets if isinstance(body, NewConversation) else None
    refuse(judging.conversation_faults(secrets, known))
    governed = await governing.govern_conversation(body, tree, backend, caller)
    return AdmittedBody(governed, None if tree is None else tree.writers)


async def admit_messages(
    conversation_id: str, input: str | Sequence[Message], backend: Backend, caller: Caller, *, turns: bool
) -> None:
    """Check the user's messages for a conversation, or whole ``turns``. One without an agent takes any: its models are
    not known yet.

    Raises:
        Refused: everything that is wrong with them.
        UnknownConversation, StoreUnavailable: its agent cannot be looked at.
    """
    await governing.check_heard(conversation_id, backend, caller)
    tree = (await standing_conversation(conversation_id, backend)).tree if has_parts(input) else None
    refuse(judging.message_faults(input, NO_MODELS if tree is None else tree.models, turns=turns))


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
    refuse(judging.secret_faults(secrets, pointer, seals=backend.store.vault.usable))
