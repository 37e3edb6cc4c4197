"""Everything that is declared of events happens: each kind comes, and each of its fields says something."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from palaver.errors import ErrorClass, Failure
from palaver.events import EVENTS, BaseEvent, EventKind, StoredIn
from palaver.schemas.actions import QuestionAnswer, ServerQuestion
from palaver.schemas.models import Budget, Message, ToolCall, Usage
from palaver.steps.leases import Delta, Lease, ProgressDelta
from palaver.steps.stuck import Nudge
from palaver.steps.verdicts import (
    AskPerson,
    Condensed,
    Continue,
    Finish,
    FormatMismatch,
    Postpone,
    ReasoningDropped,
    RetryAfter,
    ToolOutcome,
)
from palaver.vocabulary.lifecycle import StopReason
from tests.contract.store_driver import PAUSE, RATE_LIMITED, RESUME, TOOL_ERROR, StoreDriver, deny, edit, say
from tests.contract.test_agent_calls import Family
from tests.declared_events import declared


@pytest.fixture
def driver(store: Any, redis: Any) -> Family:
    return Family(store, redis)


async def _due(driver: StoreDriver, run_id: str, step: str) -> Lease:
    """The lease of a step that was put off."""
    (settled,) = await driver.hasten(run_id, step)
    return await driver.claim(settled.deliveries[0])


async def _failures(driver: StoreDriver) -> str:
    """A run that waits, loses a worker, fails, is condensed and told off, and whose tool fails before it does."""
    run_id, lease = await driver.begin(budget=Budget(tool_calls=1))
    await driver.store.steps.settle(lease, Postpone(60.0, "outage", failure=Failure.of(ErrorClass.CONNECTION)))
    lease = await _due(driver, run_id, "1")
    await driver.store.steps.write_deltas([Delta(lease, "Hm.", reasoning=True), Delta(lease, "Let me")])
    (settled,) = await driver.lose(lease)
    paid = Usage(model_calls=1, cost_usd=0.25)
    by_rule = RetryAfter(60.0, RATE_LIMITED, rule="rate_limited of the tool's policy", usage=paid)
    await driver.store.steps.settle(await driver.claim(settled.deliveries[0]), by_rule)
    lease = await _due(driver, run_id, "1")
    (delivery,) = await driver.ask(lease, "c1")
    lease = await driver.claim(delivery)
    assert lease.call is not None
    await driver.store.steps.write_deltas([ProgressDelta(lease, lease.call, "3 of 10", 0.3)])
    failed = Continue(outcomes=(ToolOutcome.failed(lease.call, TOOL_ERROR),))
    settled = await driver.store.steps.settle(lease, failed)
    lease = await driver.claim(settled.deliveries[0])
    notes = (Condensed("so far", 2), ReasoningDropped("responses/x/y"), Nudge("Try something else.", left_out_after=1))
    misfit = FormatMismatch("That is no JSON.", Failure.of(ErrorClass.INVALID_OUTPUT))
    settled = await driver.store.steps.settle(lease, Continue(Message(role="assistant", content="{"), misfit=misfit))
    lease = await driver.claim(settled.deliveries[0])
    answer = Message(role="assistant", content="no")
    await driver.store.steps.settle(lease, Finish(answer, StopReason.END_TURN, paid, notes, prompt_tokens=10))
    return run_id


async def _decisions(driver: StoreDriver) -> str:
    """A run that others decide about, steer, pause, and cancel with all that it said."""
    run_id, lease = await driver.begin()
    (delivery,) = await driver.ask(lease, "c1", "c2", "c3", approval=("c1", "c2"))
    await driver.store.steps.settle(
        await driver.claim(delivery), AskPerson(ServerQuestion(asker="crm", message="?"), 60.0, "{}")
    )
    asked = (await driver.action(run_id, "c3")).id
    await driver.act(run_id, QuestionAnswer(type="answer", action_id=asked, response="cancel"), by="alice")
    await driver.act(run_id, edit((await driver.action(run_id, "c1")).id, x=2), by="alice")
    await driver.act(run_id, deny((await driver.action(run_id, "c2")).id, "not that"), by="alice")
    await driver.act(run_id, say("in metres"))
    await driver.act(run_id, PAUSE)
    acted = await driver.act(run_id, RESUME)
    lease = await driver.claim(acted.settled.deliveries[0])
    await driver.store.runs.cancel(run_id, mode="rollback", reason="enough", by="alice")
    await driver.answer(lease)
    return run_id


async def _a_failed_run(driver: StoreDriver) -> str:
    """A run whose model makes up a tool, and that fails while another one of its conversation waits behind it."""
    run_id, lease = await driver.begin()
    await driver.submit(conversation_id=lease.conversation_id)
    call = ToolCall(id="c1", name="made_up")
    refused = ToolOutcome.failed(call, Failure.of(ErrorClass.INVALID_TOOL_CALL))
    asked = Message(role="assistant", tool_calls=(call,))
    settled = await driver.store.steps.settle(lease, Continue(asked, (refused,)))
    await driver.give_up(await driver.claim(settled.deliveries[0]))
    return run_id


async def _a_refused_run(driver: StoreDriver) -> str:
    """A run whose answer the provider withheld."""
    run_id, lease = await driver.begin()
    withheld = Failure.of(ErrorClass.CONTENT_FILTER)
    await driver.store.steps.settle(lease, Finish(None, StopReason.CONTENT_FILTER, withheld=withheld))
    return run_id


async def _a_run_above(driver: Family) -> str:
    """A run that shows what waits for somebody in the run of another agent that it began, and what came of it."""
    run_id, (lease,) = await driver.waiting()
    (delivery,) = await driver.ask(lease, "a1", "a2", "c1", approval=("a1", "a2"))
    asking = AskPerson(ServerQuestion(asker="crm", message="?"), 60.0, "{}")
    await driver.store.steps.settle(await driver.claim(delivery), asking)
    asked = (await driver.action(lease.run_id, "c1")).id
    answer = QuestionAnswer(type="answer", action_id=asked, response="cancel")
    for item in (
        answer,
        edit((await driver.action(lease.run_id, "a1")).id, x=2),
        deny((await driver.action(lease.run_id, "a2")).id, "not that"),
    ):
        await driver.act(lease.run_id, item, by="alice")
    return run_id


async def test_each_kind_comes_with_each_of_its_fields(driver: Family) -> None:
    seen: defaultdict[str, set[str]] = defaultdict(set)
    for made in (_failures, _decisions, _a_failed_run, _a_refused_run, _a_run_above):
        run = await driver.get(await made(driver))
        queued = (await driver.store.runs.conversation(run.conversation_id)).active_run
        for run_id in {run.id, queued or run.id}:
            for event in await driver.events(run_id):
                seen[event.type] |= _said(declared(event))
    emitted = {kind for kind in EventKind if kind.stored_in is not StoredIn.NOWHERE}
    assert seen == {kind: EVENTS[kind].model_fields.keys() - BaseEvent.model_fields.keys() for kind in emitted}


def _said(event: BaseEvent) -> set[str]:
    """The fields in which the event says something."""
    return {
        name
        for name, field in type(event).model_fields.items()
        if name not in BaseEvent.model_fields and (field.is_required() or getattr(event, name) != field.default)
    }
