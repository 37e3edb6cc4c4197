"""Admission of a request, beyond its shape: an agent's spec, its content, its history and its money."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Final

from palaver.errors import Fault, Refused
from palaver.schemas.models import AgentSpec, Budget, Message, Retry, Submission
from palaver.vocabulary.limits import most

from ..backend import Backend
from ..catalog import Known
from ..secrets import secret_faults
from .content import content_faults
from .history import input_faults
from .spec import agent_faults, price_faults, reached_by, resolved

_FARTHEST: Final = timedelta(days=366)
"""A typing error in a year is likelier than a run that takes one."""


async def admit_submission(submission: Submission, backend: Backend) -> Submission:
    """Let a submission in: with its retry policy in the place of the policy's name.

    Raises:
        Refused: everything that is wrong with it.
        NoRoom, StoreUnavailable: nobody can tell yet whether its tools are there.
    """
    known = await backend.known(submission.agent)
    times = {name: getattr(submission, name) for name in ("start_after", "start_by", "deadline")}
    refuse(
        chain(
            _agent_faults(submission, backend, known),
            _input_faults(submission),
            _time_faults(times, datetime.now(UTC)),
            _conflict_faults(submission),
            secret_faults(submission.secrets, backend, "/secrets"),
        )
    )
    agent = resolved(submission.agent, backend.policies)
    return submission if agent is submission.agent else submission.model_copy(update={"agent": agent})


async def admit_agent(agent: AgentSpec | None, backend: Backend) -> AgentSpec | None:
    """Let an agent in: with its retry policy in the place of the policy's name.

    Raises:
        Refused: everything that is wrong with it.
    """
    refuse([] if agent is None else agent_faults(agent, backend, await backend.known(agent)))
    return resolved(agent, backend.policies)


async def admit_retry(wanted: Retry, backend: Backend) -> Retry:
    """Let a retry or a fork in: with the retry policy of its agent in the place of the policy's name.

    Raises:
        Refused: everything that is wrong with it.
    """
    refuse(_retry_faults(wanted, backend, await backend.known(wanted.agent)))
    return wanted.model_copy(update={"agent": resolved(wanted.agent, backend.policies)})


def limits_cost(budget: Budget | None) -> bool:
    """Whether every model that the run may ask needs a price."""
    return budget is not None and budget.cost_usd is not None


def has_parts(submission: Submission) -> bool:
    """Whether what comes in is more than text, which every model can be sent."""
    given = submission.input
    return not isinstance(given, str) and any(not isinstance(message.content, str) for message in given)


def admit_messages(messages: Sequence[Message], agent: AgentSpec | None, backend: Backend) -> None:
    """Let messages in for ``agent``, the one of their conversation. Without one, nobody knows who will be sent them.

    Raises:
        Refused: a model of it cannot be sent them.
    """
    if agent is not None:
        refuse(content_faults(tuple(messages), agent, reached_by(agent, backend)))


def admit_content(submission: Submission, agent: AgentSpec, backend: Backend) -> None:
    """Let the content of a submission in, whose ``agent`` is one that is there already.

    Raises:
        Refused: a model of it cannot be sent that.
    """
    refuse(_content_faults(submission, agent, backend))


def admit_cost(agent: AgentSpec, backend: Backend, *, whose: str) -> None:
    """Let a run with a budget in dollars in, whose ``agent`` is one that is there already: ``whose`` it is.

    Raises:
        Refused: a model of it has no price.
    """
    refuse(
        replace(fault, pointer="/budget/cost_usd", message=f"the {whose}'s {fault.pointer} {fault.message}")
        for fault in price_faults(agent, reached_by(agent, backend))
    )


def refuse(faults: Iterable[Fault]) -> None:
    """Raise a problem if there is a fault. No more are looked for than it names."""
    if found := list(islice(faults, most("faults"))):
        raise Refused.of_faults(found)


def _retry_faults(wanted: Retry, backend: Backend, known: Known) -> Iterator[Fault]:
    yield from _time_faults({"deadline": wanted.deadline}, datetime.now(UTC))
    if wanted.agent is not None:
        yield from agent_faults(wanted.agent, backend, known)
        if limits_cost(wanted.budget):
            yield from price_faults(wanted.agent, reached_by(wanted.agent, backend))
    if wanted.input is not None:
        yield from input_faults(wanted.input)


def _agent_faults(submission: Submission, backend: Backend, known: Known) -> Iterator[Fault]:
    if submission.agent is not None:
        yield from agent_faults(submission.agent, backend, known)
        yield from _content_faults(submission, submission.agent, backend)
        if limits_cost(submission.budget):
            yield from price_faults(submission.agent, reached_by(submission.agent, backend))
    elif submission.conversation_id is None:
        yield Fault("/agent", "no_agent", "is required when there is no conversation_id")


def _content_faults(submission: Submission, agent: AgentSpec, backend: Backend) -> Iterator[Fault]:
    if not isinstance(submission.input, str):
        yield from content_faults(submission.input, agent, reached_by(agent, backend))


def _input_faults(submission: Submission) -> Iterator[Fault]:
    if submission.input != ():
        yield from input_faults(submission.input)
    elif submission.conversation_id is None:
        yield Fault("/input", "empty_input", "has no message, and a new conversation has none to answer")
    elif submission.start_after is not None or submission.on_conflict not in ("enqueue", "reject"):
        why = "has no message: the run answers what was said, at once, and goes with no start_after or on_conflict"
        yield Fault("/input", "empty_input", why)


def _time_faults(times: Mapping[str, datetime | None], now: datetime) -> Iterator[Fault]:
    given = {name: moment for name, moment in times.items() if moment is not None}
    for name, moment in given.items():
        if moment.tzinfo is None:
            yield Fault(f"/{name}", "invalid_time", "needs a time zone, such as a Z at its end")
            return
        # Whether it has passed is the store's to say, by its own clock; what passed long ago has by any.
        if name != "start_after" and now - moment > _FARTHEST:
            yield Fault(f"/{name}", "invalid_time", "is in the past")
        elif abs(moment - now) > _FARTHEST:
            yield Fault(f"/{name}", "invalid_time", f"is more than {_FARTHEST.days} days away")
    begins = given.get("start_after")
    for name in ("start_by", "deadline"):
        if begins is not None and name in given and begins >= given[name]:
            yield Fault("/start_after", "invalid_time", f"must be before {name}")


def _conflict_faults(submission: Submission) -> Iterator[Fault]:
    if submission.on_conflict != "enqueue" and submission.start_after is not None:
        yield Fault("/start_after", "invalid_time", "goes with on_conflict enqueue only: leave one of the two out")
    if submission.on_conflict == "steer" and not isinstance(submission.input, str):
        for index, message in enumerate(submission.input):
            if message.role != "user":
                why = "on_conflict steer puts words of the user into a run: the role must be user"
                yield Fault(f"/input/{index}/role", "invalid_history", why)
