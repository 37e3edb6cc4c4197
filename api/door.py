"""What a submission must be beyond its shape: known names, whole turns, times that make sense."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from api.backend import Backend
from api.problems import Fault, Problem
from api.strict_json import pointer
from api.validation import did_you_mean
from palaver.errors import ConfigurationError
from palaver.models import AgentSpec, Message, Submission
from palaver.providers import Provider
from palaver.retry import RetryPolicy
from palaver.tools import Registry

_FARTHEST: Final = timedelta(days=366)
"""A typing error in a year is likelier than a run that takes one."""
_TIMES: Final = ("start_after", "start_by", "deadline")
_CALL_ID: Final = 128


def admit_submission(submission: Submission, here: Backend) -> Submission:
    """Let a submission in: with its retry policy in the place of the policy's name.

    Raises:
        Problem: everything that is wrong with it.
    """
    faults = [
        *_agent_faults(submission, here),
        *_input_faults(submission.input),
        *_time_faults(submission, datetime.now(UTC)),
    ]
    if faults:
        raise Problem.of_faults(faults)
    return submission.model_copy(update={"agent": _resolved(submission.agent, here.policies)})


def admit_agent(agent: AgentSpec | None, here: Backend) -> AgentSpec | None:
    """Let an agent in: with its retry policy in the place of the policy's name.

    Raises:
        Problem: everything that is wrong with it.
    """
    faults = [] if agent is None else list(_spec_faults(agent, here))
    if faults:
        raise Problem.of_faults(faults)
    return _resolved(agent, here.policies)


def _agent_faults(submission: Submission, here: Backend) -> Iterator[Fault]:
    if submission.agent is not None:
        yield from _spec_faults(submission.agent, here)
    elif submission.conversation_id is None:
        yield Fault("/agent", "no_agent", "is required when there is no conversation_id")


def _spec_faults(agent: AgentSpec, here: Backend) -> Iterator[Fault]:
    yield from _provider_faults(agent, here.providers)
    yield from _tool_faults(agent, here.tools)
    yield from _policy_faults(agent, here.policies)


def _provider_faults(agent: AgentSpec, providers: Mapping[str, Provider]) -> Iterator[Fault]:
    for index, model in enumerate(agent.models):
        provider = model.partition("/")[0]
        if provider not in providers:
            where = f"/agent/fallbacks/{index - 1}" if index else "/agent/model"
            hint = did_you_mean(provider, providers) or f"; there are: {_listed(providers)}"
            yield Fault(where, "unknown_provider", f"names a provider that is not configured{hint}")


def _policy_faults(agent: AgentSpec, policies: Mapping[str, RetryPolicy]) -> Iterator[Fault]:
    if isinstance(agent.retry, str):
        if agent.retry not in policies:
            hint = did_you_mean(agent.retry, policies) or f"; there are: {', '.join(sorted(policies)) or 'none'}"
            yield Fault("/agent/retry", "unknown_policy", f"is no policy of PALAVER_RETRY_POLICIES{hint}")
    elif agent.retry is not None:
        try:
            RetryPolicy.parse(agent.retry)
        except ConfigurationError as error:
            yield Fault(f"/agent/retry{error.pointer}", "invalid_policy", error.reason)


def _resolved(agent: AgentSpec | None, policies: Mapping[str, RetryPolicy]) -> AgentSpec | None:
    if agent is None or not isinstance(agent.retry, str):
        return agent
    return agent.model_copy(update={"retry": policies[agent.retry].dump()})


def _tool_faults(agent: AgentSpec, tools: Registry) -> Iterator[Fault]:
    for index, name in enumerate(agent.tools):
        if name not in tools:
            hint = did_you_mean(name, tools) or f"; there are: {_listed(tools)}"
            yield Fault(f"/agent/tools/{index}", "unknown_tool", f"is not a tool here{hint}")
        elif name in agent.tools[:index]:
            yield Fault(f"/agent/tools/{index}", "duplicate_tool", "is named before")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)[:50]) or "none (see PALAVER_PROVIDERS)"


def _input_faults(given: str | Sequence[Message]) -> Iterator[Fault]:
    if isinstance(given, str):
        if not given.strip():
            yield Fault("/input", "empty_input", "says nothing")
        return
    if not given:
        yield Fault("/input", "empty_input", "has no message")
        return
    for index, message in enumerate(given):
        yield from _message_faults(index, message)
    yield from _turn_faults(given)
    if given[-1].role == "assistant":
        yield _broken(len(given) - 1, "the last message must be the user's or a tool's, for the model to answer")


def _message_faults(index: int, message: Message) -> Iterator[Fault]:
    if message.role != "tool" and not message.content.strip() and not message.tool_calls:
        yield Fault(pointer(("input", index, "content")), "empty_input", "says nothing")
    if message.role != "assistant" and message.tool_calls:
        yield _broken(index, f"a {message.role} message has no tool_calls")
    if message.role == "tool" and not message.call_id:
        yield _broken(index, "a tool message needs the call_id of the call that it answers")
    if message.role != "tool" and message.call_id is not None:
        yield _broken(index, "only a tool message has a call_id")


def _turn_faults(messages: Sequence[Message]) -> Iterator[Fault]:
    """Every call has one result before the next message, and every result its call."""
    open_calls: dict[str, int] = {}
    seen: set[str] = set()
    for index, message in enumerate(messages):
        if message.role == "tool":
            call_id = message.call_id or ""
            if call_id in open_calls:
                del open_calls[call_id]
            elif call_id in seen:
                yield _broken(index, f"call {_shown(call_id)} has a second result")
            elif call_id:
                yield _broken(index, f"no call {_shown(call_id)} precedes this result")
            continue
        yield from _unanswered(open_calls)
        open_calls, seen = {}, set()
        for call in message.tool_calls:
            if not call.id or len(call.id) > _CALL_ID:
                yield _broken(index, f"a call needs an id of 1 to {_CALL_ID} characters")
            elif call.id in seen:
                yield _broken(index, f"call {_shown(call.id)} is there twice")
            seen.add(call.id)
            open_calls[call.id] = index
    yield from _unanswered(open_calls)


def _unanswered(open_calls: Mapping[str, int]) -> Iterator[Fault]:
    for call_id, index in open_calls.items():
        yield _broken(index, f"call {_shown(call_id)} has no result")


def _broken(index: int, message: str) -> Fault:
    return Fault(f"/input/{index}", "invalid_history", message)


def _shown(call_id: str) -> str:
    return repr(call_id[:64])


def _time_faults(submission: Submission, now: datetime) -> Iterator[Fault]:
    given = {name: moment for name in _TIMES if (moment := getattr(submission, name)) is not None}
    for name, moment in given.items():
        if moment.tzinfo is None:
            yield Fault(f"/{name}", "invalid_time", "needs a time zone, such as a Z at its end")
            return
        if name != "start_after" and moment <= now:
            yield Fault(f"/{name}", "invalid_time", "is in the past")
        elif abs(moment - now) > _FARTHEST:
            yield Fault(f"/{name}", "invalid_time", f"is more than {_FARTHEST.days} days away")
    begins = submission.start_after
    for name in ("start_by", "deadline"):
        if begins is not None and name in given and begins >= given[name]:
            yield Fault("/start_after", "invalid_time", f"must be before {name}")
