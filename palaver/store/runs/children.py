"""Runs that calls of other runs begin: an agent that is a tool of another one (ADR 0097)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

import orjson

from palaver.errors import UnknownRun
from palaver.schemas.models import Budget, Run, Subagent, Submission, Usage
from palaver.steps.leases import Lease, Settled
from palaver.store.reading.below import owners_of_actions
from palaver.store.redis.connection import Connection
from palaver.store.runs.runs import NewChild, Runs
from palaver.store.scripting.idempotency import idempotency
from palaver.telemetry.traces import Trace
from palaver.vocabulary.ids import derived_conversation_id, derived_run_id
from palaver.vocabulary.lifecycle import RunStatus

_NO_KEY: Final = idempotency(None, "", None)


class BudgetUsed(Exception):
    """Nothing is left of the parent's budget."""


class Children:
    """The children of runs. A call has one at most, whose ids follow from the call's place."""

    def __init__(self, redis: Connection, runs: Runs) -> None:
        self._redis = redis
        self._runs = runs

    async def of(self, lease: Lease) -> Run | None:
        """The run that the leased call began; None if there is none, or none any more."""
        try:
            return await self._runs.get(child_id(lease))
        except UnknownRun:
            return None

    async def owners_of_actions(self, run_id: str, names: Collection[str]) -> Mapping[str, str]:
        """Return which runs below ``run_id`` have, or had, the actions of these ids, or the calls of these ids."""
        return await owners_of_actions(self._redis, run_id, names)

    async def begin(self, lease: Lease, subagent: Subagent, message: str) -> Settled:
        """Begin the run of the leased call, unless it has begun. It has what is left of its parent's time and budget,
        its parent's submitter, priority and metadata, and none of its conversation's secrets.

        Raises:
            ChildBarred: ``stale``, ``stopping``, ``gone`` or ``full``, as in `Barred`.
            BudgetUsed: its parent has used up its budget.
            NoRoom: there is no room for one more run.
            NotDurable: begun, but not as safely as PALAVER_DURABILITY asks.
            StaleLease, UnknownRun: the parent is gone.
        """
        parent = await self._runs.get(lease.run_id)
        submission = Submission(
            agent=subagent.agent,
            input=message,
            deadline=_deadline(parent),
            budget=_budget(parent, subagent.budget),
            priority=parent.priority,
            metadata=parent.metadata,
        )
        run_id, about = child_id(lease), {"run_id": lease.run_id, "step": lease.step, "fence": lease.fence}
        child = NewChild(run_id, orjson.dumps({**about, "agent": subagent.agent.name or ""}), _trace(lease, run_id))
        target = derived_conversation_id(run_id, run_id, len(self._runs.shards))
        submit = await self._runs.to_submit(submission, target, "new", _NO_KEY, by=parent.submitted_by, child=child)
        begun = await self._runs.take_on(submit)
        return Settled(RunStatus.QUEUED, begun.deliveries, None)


def child_id(lease: Lease) -> str:
    """Return the id of the run that the leased call begins, or has begun."""
    return derived_run_id(lease.run_id, f"{lease.run_id}/{lease.step}")


def _deadline(parent: Run) -> datetime:
    times, budget = parent.times, parent.budget
    if budget is None or budget.seconds is None or times.started_at is None:
        return times.deadline
    return min(times.deadline, times.started_at + timedelta(seconds=budget.seconds))


def _budget(parent: Run, ceiling: Budget | None) -> Budget | None:
    """Return the most that a child may use: what its parent has left, and no more than ``ceiling``.

    Raises:
        BudgetUsed: the parent has nothing left.
    """
    left, most = _left(parent.budget, parent.usage), ceiling or Budget()
    fields = {
        "tokens": _least(left.get("tokens"), most.tokens),
        "cost_usd": _least(left.get("cost_usd"), most.cost_usd),
        "tool_calls": _least(left.get("tool_calls"), most.tool_calls),
        "seconds": most.seconds,
    }
    return Budget.model_validate(fields) if any(fields.values()) else None


def _left(budget: Budget | None, usage: Usage) -> dict[str, float]:
    if budget is None:
        return {}
    used = {
        "tokens": usage.input_tokens + usage.output_tokens,
        "cost_usd": usage.cost_usd,
        "tool_calls": usage.tool_calls,
    }
    left: dict[str, float] = {}
    for name, spent in used.items():
        most = getattr(budget, name)
        if most is None:
            continue
        if spent is None or spent >= most:
            raise BudgetUsed
        left[name] = most - spent
    return left


def _least(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _trace(lease: Lease, run_id: str) -> Trace | None:
    """Return the trace of its parent, in which the child's spans stand below the parent's."""
    trace = lease.trace
    if trace is None:
        return None
    return Trace(trace.trace_id, trace.span_id(lease.step, 0, run_id), trace.sampled, trace.root_id)
