"""Calls that wait for a person's decision or a client's output."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import orjson
import pytest

from palaver.errors import IdempotencyMismatch, StateConflict, UnknownRun
from palaver.schemas.actions import Approvals, PendingAction, digest
from palaver.schemas.models import AgentSpec, Budget
from palaver.steps.leases import Stray
from palaver.steps.verdicts import Finish
from palaver.store.redis import keys
from palaver.vocabulary.ids import new_run_id
from palaver.vocabulary.lifecycle import RunStatus, StopReason, WaitReason
from tests.contract.store_driver import (
    INTERNAL,
    PAUSE,
    TOOL_ERROR,
    StoreDriver,
    approve,
    calls,
    deny,
    edit,
    output,
    say,
)
from tests.waiting import aeventually

DENIED = "The user denied this tool call."
CANCELLED = "The user cancelled the request, so the tool call was denied."
NO_OUTPUT = "The user cancelled the request before the client gave its output. It may or may not have taken effect."
UNDECIDED = "Nobody decided in time, so the tool call was denied."


def test_some_tools_are_never_asked_about() -> None:
    approvals = Approvals(require="always", exempt=("think", "fin*"))
    for alone in (True, False):
        asked = [approvals.ask(tool, risky=True, alone=alone) for tool in ("think", "finish", "send")]
        assert asked == [False, False, True]


def test_some_tools_are_not_asked_about_alone() -> None:
    approvals = Approvals(require="always", exempt_alone=("think", "fin*"))
    for alone in (True, False):
        asked = [approvals.ask(tool, risky=False, alone=alone) for tool in ("think", "finish", "send")]
        assert asked == [not alone, not alone, True]


async def test_a_call_that_waits_is_shown_in_full(driver: StoreDriver) -> None:
    run_id, deliveries = await driver.turn("c1", approval=["c1"], timeout=60)
    assert deliveries == []

    run = await driver.get(run_id)
    (action,) = run.pending_actions
    assert (run.status, action.type, action.tool, action.call_id) == ("requires_action", "approval", "calculator", "c1")
    assert (action.arguments, action.digest) == ('{"x": 1}', digest("calculator", '{"x": 1}'))
    assert run.waiting is not None
    assert (run.waiting.reason, run.waiting.until) == (WaitReason.APPROVAL, action.expires_at)
    required, waits = (await driver.events(run_id))[-2:]
    assert (required.type, required.data["step"]) == ("action.required", "1/c1")
    assert PendingAction.model_validate(required.data["action"]) == action
    assert action.expires_at - required.at == timedelta(seconds=60)
    assert (waits.type, waits.data) == ("run.requires_action", {"pending_actions": [action.id]})
    entries = await driver.log(run_id)
    assert next(entry.data for entry in entries if entry.type == "action.required") == required.data


async def test_who_watches_is_shown_the_same_action(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    watcher = driver.store.feeds.watch(run_id)
    seen = [await anext(watcher) for _ in await driver.events(run_id)]
    coming = asyncio.ensure_future(anext(watcher))
    await aeventually(lambda: driver.is_heard(keys.feed(run_id)))
    await driver.ask(lease, "c1", client=["c1"])
    await driver.store.runs.cancel(run_id)

    seen += [await coming, *[event async for event in watcher]]
    assert seen == await driver.events(run_id)


@pytest.mark.parametrize("by", [None, "alice"])
async def test_an_approved_call_begins(driver: StoreDriver, by: str | None) -> None:
    run_id, _ = await driver.turn("c1", approval=["c1"])
    action = await driver.action(run_id, "c1")
    acted = await driver.act(run_id, approve(action.id, digest=action.digest), by=by)

    assert (acted.settled.status, acted.replayed) == ("running", False)
    (delivery,) = acted.settled.deliveries
    assert (delivery.queue, delivery.step) == ("tools", "1/c1")
    run = await driver.get(run_id)
    assert (run.pending_actions, run.waiting) == ((), None)
    resolved = (await driver.events(run_id))[-1]
    assert resolved.type == "action.resolved"
    said = {"action_id": action.id, "call_id": "c1", "decision": "approve", "by": by}
    assert resolved.data == {**said, "reason": None, "arguments": None, "response": None}
    lease = await driver.claim(delivery)
    assert (lease.call and lease.call.arguments, lease.edited) == ('{"x": 1}', False)
    (delivery,) = (await driver.answer(lease)).deliveries
    await driver.finish(await driver.claim(delivery))
    assert (await driver.get(run_id)).usage.tool_calls == 1


@pytest.mark.parametrize(("reason", "told"), [(None, DENIED), ("not bob", f"{DENIED} not bob")])
async def test_a_denied_call_is_told_to_the_model(driver: StoreDriver, reason: str | None, told: str) -> None:
    run_id, _ = await driver.turn("c1", approval=["c1"])
    action = await driver.action(run_id, "c1")
    acted = await driver.act(run_id, deny(action.id, reason), by="alice")

    assert [each.step for each in acted.settled.deliveries] == ["2"]
    assert await driver.results(run_id) == [("c1", told)]
    finished = next(event for event in await driver.events(run_id) if event.type == "tool.finished")
    assert finished.data["error"].keys() == TOOL_ERROR.to_error(step="1/c1", attempt=1).keys()
    assert (finished.data["error"]["class"], finished.data["error"]["recoverable"]) == ("tool_denied", True)
    resolved = next(event for event in await driver.events(run_id) if event.type == "action.resolved")
    assert resolved.data.get("reason") == reason
    assert (await driver.get(run_id)).usage.tool_calls == 0


async def test_an_edited_call_begins_with_the_new_arguments(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("c1", approval=["c1"])
    action = await driver.action(run_id, "c1")
    acted = await driver.act(run_id, edit(action.id, x=2, name="ä/\u2028"))

    lease = await driver.claim(acted.settled.deliveries[0])
    assert lease.call is not None
    assert (lease.call.id, lease.call.name, lease.edited) == ("c1", "calculator", True)
    assert lease.call.arguments == '{"x": 2, "name": "ä/\u2028"}'
    resolved = next(event for event in await driver.events(run_id) if event.type == "action.resolved")
    assert (resolved.data["decision"], resolved.data["arguments"]) == ("edit", lease.call.arguments)


async def test_all_is_every_approval_and_no_client_tool(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("p1", "o1", "p2", approval=["p1", "p2"], client=["o1"])
    acted = await driver.act(run_id, deny())

    assert (acted.settled.status, acted.settled.deliveries) == ("requires_action", ())
    run = await driver.get(run_id)
    assert [action.call_id for action in run.pending_actions] == ["o1"]
    assert run.waiting is not None
    assert run.waiting.reason is WaitReason.CLIENT_TOOL
    assert [call for call, _ in await driver.results(run_id)] == ["p1", "p2"]
    for item in (approve(), deny()):
        assert await _refused(driver, run_id, item) == "no_pending_action"
    assert await _refused(driver, run_id, output("all")) == "unknown_action"


async def test_all_leaves_out_what_was_decided_before_it(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("p1", "p2", "p3", approval=["p1", "p2", "p3"])
    action = await driver.action(run_id, "p2")
    acted = await driver.act(run_id, deny(action.id), approve())

    assert [each.step for each in acted.settled.deliveries] == ["1/p1", "1/p3"]
    assert await driver.results(run_id) == [("p2", DENIED)]


async def test_all_leaves_out_what_has_expired(driver: StoreDriver, redis: Any) -> None:
    run_id, lease = await driver.begin()
    await driver.ask(lease, "p1", "p2", approval=["p1", "p2"])
    await _expire(driver, run_id, "p1")
    acted = await driver.act(run_id, approve())
    assert [each.step for each in acted.settled.deliveries] == ["1/p2"]
    assert await _refused(driver, run_id, approve()) == "no_pending_action"


async def test_the_outputs_of_client_tools_come_in_any_order(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("o1", "o2", "o3", client=["o1", "o2", "o3"])
    by_action = await driver.action(run_id, "o2")
    acted = await driver.act(run_id, output("o3", {"lines": 12}), output(by_action.id, "no such file", is_error=True))
    assert (acted.settled.status, acted.settled.deliveries) == ("requires_action", ())

    acted = await driver.act(run_id, output("o1", "ä"))
    assert [each.step for each in acted.settled.deliveries] == ["2"]
    assert await driver.results(run_id) == [("o3", '{"lines": 12}'), ("o2", "no such file"), ("o1", "ä")]
    errors = [
        (event.data.get("error") or {}).get("class") for event in await driver.events(run_id) if "message" in event.data
    ]
    assert errors[-3:] == [None, "tool_error", None]
    assert (await driver.get(run_id)).usage.tool_calls == 3


@pytest.mark.parametrize(("kind", "told", "error"), [
    ("approval", UNDECIDED, "tool_denied"),
    ("client", "The client gave no output within 90 s.", "tool_timeout"),
])  # fmt: skip
@pytest.mark.parametrize("paused", [False, True])
async def test_what_nobody_resolves_expires(
    driver: StoreDriver, kind: str, told: str, error: str, paused: bool
) -> None:
    run_id, _ = await driver.turn("c1", **{kind: ["c1"]}, timeout=90)
    action = await driver.action(run_id, "c1")
    (early,) = await driver.sweep(run_id, "1/c1")
    assert early.status == "requires_action"
    if paused:
        await driver.act(run_id, PAUSE)

    (expired,) = await driver.hasten(run_id, "1/c1")
    assert (expired.status, len(expired.deliveries)) == (("paused", 0) if paused else ("running", 1))
    assert await driver.results(run_id) == [("c1", told)]
    events = [event for event in await driver.events(run_id) if event.type in ("action.resolved", "tool.finished")]
    assert [event.type for event in events] == ["action.resolved", "tool.finished"]
    said = {"action_id": action.id, "call_id": "c1", "decision": "expired"}
    assert events[0].data == {**said, "by": None, "reason": None, "arguments": None, "response": None}
    assert events[1].data["error"]["class"] == error
    assert (await driver.get(run_id)).waiting is None
    for item in (approve(action.id), deny(action.id), output(action.id), output("c1")):
        assert await _refused(driver, run_id, item) == "action_expired"


async def test_too_late_even_if_no_sweeper_has_looked(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("c1", approval=["c1"])
    action = await driver.action(run_id, "c1")
    await _expire(driver, run_id, "c1")
    assert await _refused(driver, run_id, approve(action.id)) == "action_expired"


async def test_what_an_item_can_be_refused_for(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("p1", "p2", "o1", approval=["p1", "p2"], client=["o1"])
    approval, client = await driver.action(run_id, "p1"), await driver.action(run_id, "o1")
    before = await driver.kinds(run_id)

    assert await _refused(driver, run_id, approve("act_none")) == "unknown_action"
    assert await _refused(driver, run_id, approve("p1")) == "unknown_action"
    assert await _refused(driver, run_id, output("o9")) == "unknown_action"
    assert await _refused(driver, run_id, approve(client.id)) == "wrong_action"
    assert await _refused(driver, run_id, output("p1")) == "wrong_action"
    assert await _refused(driver, run_id, approve(approval.id, digest="0" * 64)) == "digest_mismatch"
    assert await _refused(driver, run_id, approve(approval.id), deny(approval.id)) == "action_already_resolved"
    assert await _refused(driver, run_id, output("o1"), output(client.id)) == "action_already_resolved"
    assert await driver.kinds(run_id) == before

    await driver.act(run_id, approve(approval.id))
    for item in (approve(approval.id), deny(approval.id), edit(approval.id, x=1)):
        assert await _refused(driver, run_id, item) == "action_already_resolved"
    await driver.act(run_id, output("o1"))
    assert await _refused(driver, run_id, output("o1")) == "action_already_resolved"
    with pytest.raises(UnknownRun):
        await driver.act(new_run_id("00"), approve())


async def test_one_bad_item_and_none_takes_effect(driver: StoreDriver, redis: Any) -> None:
    run_id, _ = await driver.turn("p1", approval=["p1"])
    before = await driver.everything()

    with pytest.raises(StateConflict, match="item 4") as refused:
        await driver.act(run_id, approve(), say("hi"), PAUSE, output("o1"), idempotency_key="k")
    assert (refused.value.code, refused.value.run_id) == ("unknown_action", run_id)
    assert await driver.everything() == before


async def test_an_answer_that_got_lost_is_told_again(driver: StoreDriver) -> None:
    for key in (None, "k"):
        run_id, _ = await driver.turn("p1", "o1", approval=["p1"], client=["o1"])
        with driver.answers_get_lost():
            acted = await driver.act(run_id, approve(), output("o1"), say("and"), idempotency_key=key)

        assert (acted.replayed, [each.step for each in acted.settled.deliveries]) == (False, ["1/p1"])
        assert (await driver.kinds(run_id)).count("action.resolved") == 2
        assert len(await driver.results(run_id)) == 1
        # Else the next one would wait for its turn behind this delivery.
        await driver.claim(acted.settled.deliveries[0])


async def test_the_same_key_is_the_same_request(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("p1", "p2", approval=["p1", "p2"])
    action = await driver.action(run_id, "p1")
    await driver.act(run_id, approve(action.id), idempotency_key="k")
    again = await driver.act(run_id, approve(action.id), idempotency_key="k")
    assert (again.replayed, again.settled.status, again.settled.deliveries) == (True, "running", ())

    with pytest.raises(IdempotencyMismatch):
        await driver.act(run_id, deny(action.id), idempotency_key="k")
    await driver.store.runs.cancel(run_id)
    assert (await driver.act(run_id, approve(action.id), idempotency_key="k")).settled.status == "cancelled"
    other, _ = await driver.turn("p1", approval=["p1"])
    with pytest.raises(IdempotencyMismatch):
        await driver.act(other, approve(action.id), idempotency_key="k")


async def test_the_other_calls_of_the_turn_go_on_meanwhile(driver: StoreDriver) -> None:
    run_id, (delivery,) = await driver.turn("c1", "p1", "o1", approval=["p1"], client=["o1"])
    run = await driver.get(run_id)
    assert (run.status, run.waiting, len(run.pending_actions)) == (RunStatus.RUNNING, None, 2)

    lease = await driver.claim(delivery)
    await driver.act(run_id, output("o1", "from the client"))
    assert (await driver.get(run_id)).status is RunStatus.RUNNING
    assert (await driver.answer(lease)).status == "requires_action"
    acted = await driver.act(run_id, approve())
    last = await driver.claim(acted.settled.deliveries[0])
    (delivery,) = (await driver.answer(last, "43")).deliveries

    assert await driver.results(run_id) == [("o1", "from the client"), ("c1", "42"), ("p1", "43")]
    assert (await driver.kinds(run_id)).count("run.requires_action") == 1
    entries = (await driver.claim(delivery)).log.entries
    assert [entry.message.call_id for entry in entries[2:]] == ["o1", "c1", "p1"]


async def test_a_call_that_backs_off_beside_one_that_waits(driver: StoreDriver) -> None:
    run_id, (delivery,) = await driver.turn("c1", "p1", approval=["p1"])
    await driver.retry(await driver.claim(delivery), failure=TOOL_ERROR)
    run = await driver.get(run_id)
    assert (run.status, run.waiting and run.waiting.reason) == ("running", WaitReason.BACKOFF)

    acted = await driver.act(run_id, deny())
    assert (acted.settled.status, acted.settled.deliveries) == ("running", ())
    (due,) = await driver.hasten(run_id, "1/c1")
    lease = await driver.claim(due.deliveries[0])
    assert [each.step for each in (await driver.answer(lease)).deliveries] == ["2"]


async def test_several_rounds_of_decisions(driver: StoreDriver) -> None:
    """Providers use the same call ids again: an action belongs to exactly one call."""
    run_id, lease = await driver.begin()
    seen: set[str] = set()
    for _ in range(3):
        await driver.ask(lease, "c1", approval=["c1"])
        action = await driver.action(run_id, "c1")
        assert action.id not in seen
        for earlier in seen:
            assert await _refused(driver, run_id, approve(earlier)) == "action_already_resolved"
        seen.add(action.id)
        acted = await driver.act(run_id, deny(action.id))
        lease = await driver.claim(acted.settled.deliveries[0])
    await driver.finish(lease)
    waits = [event.data for event in await driver.events(run_id) if event.type == "run.requires_action"]
    assert [ids for data in waits for ids in data["pending_actions"]] == [*dict.fromkeys(
        event.data["action"]["id"] for event in await driver.events(run_id) if event.type == "action.required"
    )]  # fmt: skip


@pytest.mark.parametrize("mode", ["graceful", "now", "rollback"])
async def test_a_cancel_answers_every_call_that_waits(driver: StoreDriver, mode: Any) -> None:
    run_id, deliveries = await driver.turn("p1", "o1", "c1", "p2", "c2", approval=["p1", "p2"], client=["o1"])
    lease = await driver.claim(deliveries[0])
    actions = [action.id for action in (await driver.get(run_id)).pending_actions]
    assert (await driver.store.runs.cancel(run_id, mode=mode)).status == "cancelling"

    run = await driver.get(run_id)
    assert run.pending_actions == ()
    for item in (approve(actions[0]), output("o1"), say("hello?")):
        assert await _refused(driver, run_id, item) == "run_ended"
    assert (await driver.answer(lease)).status == "cancelled"
    assert await driver.results(run_id) == [
        ("c1", "42"), ("p1", CANCELLED), ("o1", NO_OUTPUT), ("p2", CANCELLED), ("c2", CANCELLED),
    ]  # fmt: skip
    resolved = [event.data for event in await driver.events(run_id) if event.type == "action.resolved"]
    assert [(each["action_id"], each["decision"]) for each in resolved] == [(each, "cancelled") for each in actions]
    assert await _refused(driver, run_id, approve(actions[0])) == "run_ended"


@pytest.mark.parametrize("names", [("p1",), ("o1",), ("p1", "p2", "p3")])
async def test_a_cancel_while_nothing_else_goes_on(driver: StoreDriver, names: tuple[str, ...]) -> None:
    """R9 to R13: cancelled at once, nothing is left waiting, and the conversation goes on."""
    run_id, _ = await driver.turn(*names, approval=[n for n in names if n[0] == "p"], client=["o1"])
    conversation = (await driver.get(run_id)).conversation_id
    with pytest.raises(StateConflict) as refused:
        await driver.submit(conversation_id=conversation)
    assert (refused.value.code, refused.value.run_id) == ("pending_action", run_id)

    assert (await driver.store.runs.cancel(run_id)).status == "cancelled"
    texts = [text for _, text in await driver.results(run_id)]
    assert texts == [CANCELLED if name[0] == "p" else NO_OUTPUT for name in names]
    second, lease = await driver.begin(conversation_id=conversation)
    await driver.finish(lease)
    assert (await driver.get(second)).status is RunStatus.COMPLETED


@pytest.mark.parametrize("beside", [False, True])
async def test_a_deadline_answers_every_call_that_waits(driver: StoreDriver, redis: Any, beside: bool) -> None:
    names = ("p1", "o1", *(["c1"] if beside else []))
    run_id, deliveries = await driver.turn(*names, approval=["p1"], client=["o1"])
    if beside:
        await driver.claim(deliveries[0])
    await redis.hset(keys.run(run_id), "deadline", 2)
    await driver.hasten(run_id, "end")

    run = await driver.get(run_id)
    assert (run.status, run.pending_actions, run.waiting) == (RunStatus.EXPIRED, (), None)
    begun = "Interrupted: the run ended (deadline). It may or may not have taken effect."
    assert await driver.results(run_id) == [
        ("p1", "Not started: the run ended (deadline)."),
        ("o1", "The run ended (deadline) before the client gave its output. It may or may not have taken effect."),
        *([("c1", begun)] if beside else []),
    ]


async def test_a_failing_call_ends_the_run_and_those_that_wait(driver: StoreDriver) -> None:
    run_id, (delivery,) = await driver.turn("c1", "p1", "o1", approval=["p1"], client=["o1"])
    assert (await driver.give_up(await driver.claim(delivery), INTERNAL)).status == "failed"
    assert [call for call, _ in await driver.results(run_id)] == ["c1", "p1", "o1"]


async def test_calls_that_wait_are_taken_from_the_budget(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(budget=Budget(tool_calls=2))
    settled = await driver.store.steps.settle(lease, calls("c1", "p1", "o1", approval=["p1"], client=["o1"]))
    assert settled.status == "incomplete"
    assert (await driver.get(run_id)).stop_reason is StopReason.BUDGET
    assert "action.required" not in await driver.kinds(run_id)


async def test_the_last_decision_at_the_last_step(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(agent=AgentSpec(model="fake/echo", max_steps=1))
    await driver.ask(lease, "p1", approval=["p1"])
    acted = await driver.act(run_id, deny())
    assert (acted.settled.status, acted.settled.deliveries) == ("incomplete", ())
    assert (await driver.get(run_id)).stop_reason is StopReason.MAX_STEPS


async def test_the_next_run_is_woken_by_a_decision_that_ends_this_one(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(agent=AgentSpec(model="fake/echo", max_steps=1))
    second = await driver.submit(conversation_id=lease.conversation_id)
    await driver.ask(lease, "p1", approval=["p1"])
    acted = await driver.act(run_id, deny())
    assert acted.settled.next_run == second.run_id


async def test_deliveries_from_before_are_strays(driver: StoreDriver) -> None:
    run_id, (delivery,) = await driver.turn("c1", "p1", approval=["p1"])
    assert await driver.try_claim(delivery.__class__("tools", run_id, delivery.conversation_id, "1/p1", 1)) == Stray(
        "awaiting"
    )
    await driver.answer(await driver.claim(delivery))
    assert await driver.try_claim(delivery) == Stray("requires_action")


async def test_an_answer_cut_off_at_calls_that_would_wait(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    message = calls("p1", approval=["p1"]).message
    await driver.store.steps.settle(lease, Finish(message, StopReason.MAX_TOKENS))
    assert (await driver.get(run_id)).pending_actions == ()


async def _refused(driver: StoreDriver, run_id: str, *items: Any) -> str:
    with pytest.raises(StateConflict) as refused:
        await driver.act(run_id, *items)
    assert refused.value.run_id == run_id
    return refused.value.code


async def _expire(driver: StoreDriver, run_id: str, call_id: str) -> None:
    """The action's time is over, and no sweeper has looked yet."""
    name, step = f"1/{call_id}", keys.steps(run_id)
    actions = orjson.loads(await driver.redis.hget(keys.run(run_id), "actions"))
    for action in actions:
        if action["call_id"] == call_id:
            action["expires_at"] = 1
    await driver.redis.hset(keys.run(run_id), "actions", orjson.dumps(actions))
    held = orjson.loads(await driver.redis.hget(step, name))
    await driver.redis.hset(step, name, orjson.dumps({**held, "until": 1}))
    await driver.redis.zadd(keys.due("00"), {f"{run_id}/{name}": 1})


async def test_calls_that_a_client_takes_over_end_the_run(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("o1", "o2", client=["o1", "o2"])
    acted = await driver.store.control.hand_over(run_id, ["o1", "o2"], by="desk")
    assert acted.settled.deliveries == ()
    run = await driver.get(run_id)
    assert (run.status, run.stop_reason, run.cancel) == (RunStatus.COMPLETED, StopReason.END_TURN, None)
    results = [
        event.data["message"]["content"] for event in await driver.events(run_id) if event.type == "tool.finished"
    ]
    assert results == ["The client took this call over: what came of it is not known here."] * 2
    with pytest.raises(StateConflict) as refused:
        await driver.store.control.hand_over(run_id, ["o1"])
    assert refused.value.code == "run_ended"


async def test_a_run_that_waits_for_a_person_too_waits_on(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("o1", "p1", client=["o1"], approval=["p1"])
    await driver.store.control.hand_over(run_id, ["o1"])
    assert (await driver.get(run_id)).status is RunStatus.REQUIRES_ACTION
