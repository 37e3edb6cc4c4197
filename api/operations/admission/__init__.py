"""Admission of a request, beyond its shape: an agent's spec, its content, its history and its money.

The names and models that a request is judged by are looked up once (``resolution``). Each rule compares and yields
faults; one answer has all faults of a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TypeVar

from pydantic import SecretStr

from palaver.errors import FieldError, Refused
from palaver.schemas.actions import Item
from palaver.schemas.conversation import ConversationPatch, Fork, NewConversation
from palaver.schemas.models import AgentSpec, Message, Retry, Submission
from palaver.vocabulary.limits import limit_of

from ..backend import Backend, within_deadline
from . import content, history, items, money, schedule, spec
from .resolution import look_up, resolve
from .spec import AGENT_PROBLEMS, UnknownName

__all__ = [
    "AGENT_PROBLEMS",
    "admit_conversation",
    "admit_items",
    "admit_messages",
    "admit_retry",
    "admit_secrets",
    "admit_submission",
    "refuse",
]

Body = TypeVar("Body", Submission, Retry, NewConversation, Fork, ConversationPatch)
OfConversation = TypeVar("OfConversation", NewConversation, Fork, ConversationPatch)


async def admit_submission(submission: Submission, backend: Backend) -> tuple[Submission, str | None]:
    """Check a submission. Return it with its retry policy in the place of the policy's name, and what its run waits for
    if no worker is there, as in ``waiting``.

    Raises:
        Refused: everything that is wrong with it.
        UnknownConversation: it depends on the agent of a conversation that is not there.
        StoreUnavailable: it is not known yet whether its tools are there.
    """
    agent, conversation_id = submission.agent, submission.conversation_id
    known = await look_up(agent, backend)
    models, owner = known.models, ""
    # Most need no look at the agent that the conversation has.
    looks = money.needs_prices(submission.budget) or content.has_parts(submission.input)
    if agent is None and conversation_id is not None and looks:
        models, owner = resolve(await _agent_of(conversation_id, backend), backend.providers), "conversation"
    refuse(
        chain(
            spec.faults(agent, known) if agent is not None else spec.missing(conversation_id),
            spec.secret_faults(submission.secrets, "/secrets", seals=known.seals),
            content.faults(submission.input, models),
            money.faults(submission.budget, models, owner),
            history.faults(submission),
            schedule.faults(submission),
        )
    )
    lacks = None
    if known.callable_providers == frozenset():
        if agent is None and conversation_id is not None:
            agent = await _agent_of(conversation_id, backend)
        lacks = f"provider:{agent.provider}" if agent is not None else None
    return _with_policy(submission, backend), lacks


async def admit_retry(run_id: str, body: Retry, backend: Backend) -> Retry:
    """Check a retry or a fork of a run. Return it with the retry policy of its agent in the place of the policy's name.

    Raises:
        Refused: everything that is wrong with it.
        UnknownRun: it depends on the agent of a run that is not there.
        StoreUnavailable: it is not known yet whether its tools are there.
    """
    known = await look_up(body.agent, backend)
    models, owner = known.models, ""
    if body.agent is None and money.needs_prices(body.budget):
        run = await within_deadline(backend.store.runs.get(run_id))
        models, owner = resolve(run.agent, backend.providers), "run"
    refuse(
        chain(
            spec.faults(body.agent, known) if body.agent is not None else (),
            money.faults(body.budget, models, owner),
            history.input_faults(body.input) if body.input is not None else (),
            schedule.faults(body),
        )
    )
    return _with_policy(body, backend)


async def admit_conversation(body: OfConversation, backend: Backend) -> OfConversation:
    """Check a new conversation, a fork or a change of one. Return it with the retry policy of its agent in the place of
    the policy's name.

    Raises:
        Refused: everything that is wrong with its agent or its secrets.
        StoreUnavailable: it is not known yet whether its tools are there.
    """
    known = await look_up(body.agent, backend)
    secrets = body.secrets if isinstance(body, NewConversation) else None
    refuse(
        chain(
            spec.faults(body.agent, known) if body.agent is not None else (),
            spec.secret_faults(secrets, "/secrets", seals=known.seals),
        )
    )
    return _with_policy(body, backend)


async def admit_messages(conversation_id: str, input: str | Sequence[Message], backend: Backend) -> None:
    """Check the user's messages for a conversation. One without an agent takes any: its models are not known yet.

    Raises:
        Refused: everything that is wrong with them.
        UnknownConversation, StoreUnavailable: its agent cannot be looked at.
    """
    agent = await _agent_of(conversation_id, backend) if content.has_parts(input) else None
    refuse(
        chain(
            history.input_faults(input),
            history.role_faults(input, "must be user: these are words of the user's"),
            content.faults(input, resolve(agent, backend.providers)),
        )
    )


async def admit_items(run_id: str, inputs: Sequence[Item], backend: Backend) -> None:
    """Check the items of an input. The store decides which action is meant, and whether it is still pending.

    Raises:
        Refused: everything that is wrong with them.
        UnknownRun: the arguments of a call are edited, and the run is not there.
    """
    refuse(items.faults(inputs))
    if items.edits(inputs):
        run = await within_deadline(backend.store.runs.get(run_id))
        tools = await within_deadline(backend.catalog.tools())
        refuse(items.edit_faults(inputs, run.pending_actions, tools or {}))


def admit_secrets(secrets: Mapping[str, SecretStr | None], pointer: str, backend: Backend) -> None:
    """Check secrets that stand at ``pointer`` in a body.

    Raises:
        Refused: ``no_secret_key``.
    """
    refuse(spec.secret_faults(secrets, pointer, seals=backend.store.vault.usable))


def refuse(faults: Iterable[FieldError | UnknownName]) -> None:
    """Raise a problem if there is a fault. It looks for no more faults than the problem names."""
    first = islice(faults, limit_of("faults"))
    if named := [fault.as_fault() if isinstance(fault, UnknownName) else fault for fault in first]:
        raise Refused.of_faults(named)


async def _agent_of(conversation_id: str, backend: Backend) -> AgentSpec | None:
    return (await within_deadline(backend.store.runs.conversation(conversation_id))).agent


def _with_policy(body: Body, backend: Backend) -> Body:
    agent = body.agent
    if agent is None or not isinstance(agent.retry, str):
        return body
    named = agent.model_copy(update={"retry": backend.policies[agent.retry].dump()})
    return body.model_copy(update={"agent": named})
