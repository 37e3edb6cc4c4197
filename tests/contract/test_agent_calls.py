"""A call of an agent: it begins one run, waits for that without a lease, and is woken by its end (ADR 0097)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from palaver.delivery.publishing import follow_up
from palaver.errors import StateConflict
from palaver.schemas.models import AgentSpec, Budget, Message, Retry, Subagent, Submission, ToolCall, Usage
from palaver.steps.leases import Delivery, Lease, Settled
from palaver.steps.verdicts import Continue, Finish, OpenCall, Postpone, ToolOutcome
from palaver.store.redis import keys
from palaver.store.redis.reach import Reach, within
from palaver.store.runs.children import BudgetUsed, child_id
from palaver.store.runs.runs import ChildBarred
from palaver.vocabulary.ids import new_run_id, shard_of, tenant_of
from palaver.vocabulary.lifecycle import RunStatus, StopReason, WaitReason
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.step_kinds import REMOTE
from tests.contract.store_driver import PAUSE, RESUME, StoreDriver, approve, calls, say

RESEARCHER = AgentSpec(model="fake/echo", name="researcher", version=3, tools=("calculator",))
LEAD = AgentSpec(
    model="fake/echo",
    tools=("calculator", "agent_researcher"),
    subagents={"agent_researcher": Subagent(agent=RESEARCHER)},
)
WAIT = 3600.0


class Family(StoreDriver):
    """A driver that also does what workers do with calls of agents."""

    async def ask_agents(self, lease: Lease, *ids: str) -> list[Delivery]:
        """The model calls the agent."""
        asked = tuple(ToolCall(id=each, name="agent_researcher", arguments='{"message": "look"}') for each in ids)
        opened = tuple(OpenCall(call, idempotent=True, kind=REMOTE) for call in asked)
        message = Message(role="assistant", tool_calls=asked)
        return list((await self.store.steps.settle(lease, Continue(message, calls=opened))).deliveries)

    async def lead(self, *ids: str, **more: Any) -> tuple[str, list[Lease]]:
        """A run whose model called the agent, and the leases of these calls."""
        run_id, lease = await self.begin(**{"agent": LEAD, **more})
        return run_id, [await self.claim(delivery) for delivery in await self.ask_agents(lease, *(ids or ("c1",)))]

    async def begin_child(self, lease: Lease) -> Settled:
        return await self.store.children.begin(lease, lease.agent.subagents["agent_researcher"], "look")

    async def leave(self, lease: Lease) -> Settled:
        """The call waits for its run."""
        return await self.store.steps.settle(lease, Postpone(WAIT, child_id(lease), WaitReason.AGENT_RUN))

    async def waiting(self, *ids: str, **more: Any) -> tuple[str, list[Lease]]:
        """A run whose calls wait, and the leases of the first steps of their runs."""
        run_id, called = await self.lead(*ids, **more)
        children = []
        for lease in called:
            begun = await self.begin_child(lease)
            await self.leave(lease)
            children.append(await self.claim(begun.deliveries[0], "w2"))
        return run_id, children

    async def end(self, lease: Lease, usage: Usage | None = None) -> Settled:
        """The child's model ends its turn."""
        verdict = Finish(Message(role="assistant", content="found"), StopReason.END_TURN, usage=usage or Usage())
        return await self.store.steps.settle(lease, verdict)

    async def follow(self, settled: Sequence[Settled]) -> list[Delivery]:
        """Follow up as workers do; what is to be published."""
        found: list[Delivery] = []
        await follow_up(self.store, found.extend, settled)
        return found

    async def reply(self, delivery: Delivery) -> Settled:
        """The woken call has its answer."""
        lease = await self.claim(delivery)
        assert lease.kind is REMOTE
        child = await self.store.children.of(lease)
        assert child is not None
        assert child.status.terminal
        message = Message(role="tool", call_id=lease.answers.id, name=lease.answers.name, content=child.output or "")
        return await self.store.steps.settle(lease, Continue(outcomes=(ToolOutcome(message),)))

    async def step(self, run_id: str, name: str) -> dict[str, Any]:
        """The record of a step."""
        return dict(orjson.loads(await self.redis.hget(keys.steps(run_id), name)))


@pytest.fixture
def driver(store: Any, redis: Any) -> Family:
    return Family(store, redis)


async def test_a_call_begins_a_run_and_waits_for_it(driver: Family) -> None:
    run_id, (lease,) = await driver.lead(metadata={"user": "u7"}, priority=2)
    assert lease.step == "1/c1"
    begun = await driver.begin_child(lease)
    (delivery,) = begun.deliveries
    child = await driver.get(delivery.run_id)
    assert child.parent is not None
    assert (child.parent.run_id, child.parent.step, child.parent.depth) == (run_id, "1/c1", 1)
    assert (child.agent, child.metadata, child.priority) == (RESEARCHER, {"user": "u7"}, 2)
    assert shard_of(child.id) == shard_of(child.conversation_id) == shard_of(run_id)
    await driver.leave(lease)
    run = await driver.get(run_id)
    assert run.status is RunStatus.RUNNING
    assert run.waiting is not None
    assert (run.waiting.reason, run.waiting.run_id) == (WaitReason.AGENT_RUN, child.id)
    assert [(each.run_id, each.step, each.agent, each.status) for each in run.children] == [
        (child.id, "1/c1", "researcher", None)
    ]


async def test_its_end_wakes_the_call_and_its_words_are_the_answer(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    settled = await driver.end(lease)
    assert settled.due == (f"{run_id}/1/c1",)
    (delivery,) = await driver.follow([settled])
    assert (delivery.run_id, delivery.step) == (run_id, "1/c1")
    (following,) = (await driver.reply(delivery)).deliveries
    assert (following.run_id, following.step) == (run_id, "2")
    assert await driver.results(run_id) == [("c1", "found")]
    run = await driver.get(run_id)
    assert run.waiting is None
    assert [each.status for each in run.children] == [RunStatus.COMPLETED]


async def test_a_sweeper_wakes_it_where_the_caller_died(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    await driver.end(lease)
    things, _ = await driver.store.due.due()
    assert (run_id, "1/c1") in [(thing.run_id, thing.what) for thing in things]
    (delivery,) = await driver.follow(await driver.store.due.sweep(things))
    await driver.reply(delivery)
    assert await driver.results(run_id) == [("c1", "found")]


async def test_beginning_again_begins_nothing(driver: Family) -> None:
    run_id, (lease,) = await driver.lead()
    first, second = await driver.begin_child(lease), await driver.begin_child(lease)
    assert [each.run_id for each in first.deliveries] == [each.run_id for each in second.deliveries]
    # Its worker dies before it leaves the call: another one finds the run.
    (lost,) = await driver.lose(lease)
    again = await driver.claim(lost.deliveries[0], "w3")
    found = await driver.store.children.of(again)
    assert found is not None
    await driver.begin_child(again)
    await driver.leave(again)
    assert len((await driver.get(run_id)).children) == 1
    assert len(await driver.redis.keys("*:run:*")) == 2


async def test_without_the_newest_lease_nothing_begins(driver: Family) -> None:
    _, (lease,) = await driver.lead()
    (lost,) = await driver.lose(lease)
    with pytest.raises(ChildBarred, match="stale"):
        await driver.begin_child(lease)
    again = await driver.claim(lost.deliveries[0], "w3")
    with pytest.raises(ChildBarred, match="stale"):
        await driver.begin_child(lease)
    await driver.begin_child(again)


async def test_a_child_that_ends_before_its_call_waits_is_not_waited_for(driver: Family) -> None:
    run_id, (lease,) = await driver.lead()
    begun = await driver.begin_child(lease)
    settled = await driver.end(await driver.claim(begun.deliveries[0], "w2"))
    assert settled.due == ()
    (delivery,) = (await driver.leave(lease)).deliveries
    await driver.reply(delivery)
    assert await driver.results(run_id) == [("c1", "found")]


async def test_a_repeated_answer_of_the_store_changes_nothing(driver: Family) -> None:
    with driver.answers_get_lost():
        run_id, (lease,) = await driver.waiting()
        await driver.end(lease, Usage(model_calls=1, input_tokens=10, cost_usd=0.5))
        things, _ = await driver.store.due.due()
        (delivery, *_) = await driver.follow(await driver.store.due.sweep(things))
        await driver.reply(delivery)
    run = await driver.get(run_id)
    assert (run.usage.input_tokens, run.usage.cost_usd) == (10, 0.5)
    assert len(run.children) == 1


async def test_calls_of_a_turn_have_a_run_each(driver: Family) -> None:
    run_id, (first, second) = await driver.waiting("c1", "c2")
    assert first.run_id != second.run_id
    deliveries = await driver.follow([await driver.end(second)])
    await driver.reply(deliveries[0])
    run = await driver.get(run_id)
    assert run.waiting is not None
    assert run.waiting.run_id == first.run_id
    deliveries = await driver.follow([await driver.end(first)])
    (following,) = (await driver.reply(deliveries[0])).deliveries
    assert following.step == "2"


@pytest.mark.parametrize("mode", ["graceful", "now", "rollback"])
async def test_a_cancel_goes_down(driver: Family, mode: Any) -> None:
    run_id, (lease,) = await driver.waiting()
    settled = await driver.store.runs.cancel(run_id, mode=mode)
    assert (settled.status, settled.due) == ("cancelled", (f"{lease.run_id}/parent",))
    await driver.follow([settled])
    child = await driver.get(lease.run_id)
    assert child.status is RunStatus.CANCELLING
    assert child.cancel is not None
    assert child.cancel.mode == ("graceful" if mode == "graceful" else "now")
    assert child.cancel.reason == f"{run_id} waits for it no more"
    ended = await driver.store.steps.settle(lease, Finish(None, StopReason.CANCELLED))
    assert (ended.status, ended.due) == ("cancelled", ())


async def test_a_cancel_reaches_grandchildren(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    (delivery,) = await driver.ask_agents(lease, "g1")
    call = await driver.claim(delivery, "w2")
    begun = await driver.store.children.begin(call, Subagent(agent=RESEARCHER), "look")
    await driver.leave(call)
    grandchild = await driver.get(begun.deliveries[0].run_id)
    assert grandchild.parent is not None
    assert grandchild.parent.depth == 2
    await driver.follow([await driver.store.runs.cancel(run_id)])
    for each in (lease.run_id, grandchild.id):
        assert (await driver.get(each)).status is RunStatus.CANCELLED


async def test_any_end_of_a_run_ends_its_children(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting(deadline=None)
    await driver.redis.hset(keys.run(run_id), "deadline", 1)
    settled = await driver.hasten(run_id, "end")
    assert [each.status for each in settled] == ["expired"]
    await driver.follow(settled)
    assert (await driver.get(lease.run_id)).status is RunStatus.CANCELLING


async def test_the_sweeper_ends_them_where_the_caller_died(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    await driver.store.runs.cancel(run_id)
    things, _ = await driver.store.due.due()
    await driver.follow(await driver.store.due.sweep(things))
    assert (await driver.get(lease.run_id)).status is RunStatus.CANCELLING


async def test_a_cancel_that_comes_before_the_call_waits_ends_the_child_as_well(driver: Family) -> None:
    run_id, (lease,) = await driver.lead()
    await driver.begin_child(lease)
    await driver.store.runs.cancel(run_id)
    settled = await driver.leave(lease)
    assert settled.status == "cancelled"
    await driver.follow([settled])
    assert (await driver.get(child_id(lease))).status is RunStatus.CANCELLED


async def test_nothing_begins_while_the_run_is_being_cancelled(driver: Family) -> None:
    run_id, (lease,) = await driver.lead()
    await driver.store.runs.cancel(run_id)
    with pytest.raises(ChildBarred, match="stopping"):
        await driver.begin_child(lease)
    assert (await driver.hand_back(lease, begun=False)).status == "cancelled"


async def test_a_pause_goes_down_and_so_does_the_resume(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    paused = (await driver.act(run_id, PAUSE)).settled
    assert paused.due == (f"{lease.run_id}/parent",)
    await driver.follow([paused])
    child = await driver.get(lease.run_id)
    assert child.pausing
    assert (await driver.get(run_id)).status is RunStatus.PAUSED
    await driver.hand_back(lease)
    assert (await driver.get(lease.run_id)).status is RunStatus.PAUSED
    resumed = (await driver.act(run_id, RESUME)).settled
    (delivery,) = await driver.follow([resumed])
    assert (delivery.run_id, delivery.step) == (lease.run_id, "1")
    deliveries = await driver.follow([await driver.end(await driver.claim(delivery))])
    await driver.reply(deliveries[0])
    assert await driver.results(run_id) == [("c1", "found")]


async def test_a_child_that_somebody_paused_stays_so(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    await driver.act(lease.run_id, PAUSE)
    await driver.hand_back(lease)
    await driver.follow([(await driver.act(run_id, PAUSE)).settled])
    await driver.follow([(await driver.act(run_id, RESUME)).settled])
    assert (await driver.get(lease.run_id)).status is RunStatus.PAUSED
    await driver.act(lease.run_id, RESUME)


async def test_who_pauses_a_paused_child_keeps_it_so(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    await driver.follow([(await driver.act(run_id, PAUSE)).settled])
    await driver.hand_back(lease)
    await driver.act(lease.run_id, PAUSE)
    await driver.follow([(await driver.act(run_id, RESUME)).settled])
    assert (await driver.get(lease.run_id)).status is RunStatus.PAUSED
    await driver.act(lease.run_id, RESUME)


async def test_a_child_that_ends_while_its_parent_is_paused_is_answered_after_it(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    await driver.act(run_id, PAUSE)
    assert (await driver.end(lease)).due == ()
    settled = (await driver.act(run_id, RESUME)).settled
    (delivery,) = await driver.follow([settled])
    await driver.reply(delivery)
    assert await driver.results(run_id) == [("c1", "found")]


async def test_nothing_begins_while_the_run_is_to_pause(driver: Family) -> None:
    run_id, (lease,) = await driver.lead()
    await driver.act(run_id, PAUSE)
    with pytest.raises(ChildBarred, match="stopping"):
        await driver.begin_child(lease)
    await driver.hand_back(lease, begun=False)
    assert (await driver.get(run_id)).status is RunStatus.PAUSED


async def test_a_pause_before_the_call_waits_goes_down_when_it_does(driver: Family) -> None:
    run_id, (lease,) = await driver.lead()
    await driver.begin_child(lease)
    await driver.act(run_id, PAUSE)
    settled = await driver.leave(lease)
    assert settled.due == (f"{child_id(lease)}/parent",)
    await driver.follow([settled])
    assert (await driver.get(child_id(lease))).status is RunStatus.PAUSED


async def test_what_a_child_used_is_its_parents_too_and_once_in_the_ledger(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    settled = await driver.end(lease, Usage(model_calls=1, input_tokens=100, output_tokens=7, cost_usd=0.25))
    run = await driver.get(run_id)
    assert (run.usage.model_calls, run.usage.input_tokens, run.usage.cost_usd) == (1, 100, 0.25)
    (delivery,) = await driver.follow([settled])
    (following,) = (await driver.reply(delivery)).deliveries
    await driver.end(await driver.claim(following), Usage(model_calls=1, input_tokens=11, cost_usd=0.5))
    run = await driver.get(run_id)
    assert (run.usage.input_tokens, run.usage.cost_usd) == (111, 0.75)
    conversation = await driver.store.runs.conversation(run.conversation_id)
    assert conversation.usage.input_tokens == 111
    rows = await driver.redis.hgetall((await driver.redis.keys("*:usage:*"))[0])
    assert sum(int(number) for column, number in rows.items() if column.startswith(b"input_tokens ")) == 111


async def test_a_child_that_ends_after_its_parent_hands_on_what_it_used(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    await driver.follow([await driver.store.runs.cancel(run_id)])
    cut = Finish(None, StopReason.CANCELLED, usage=Usage(model_calls=1, input_tokens=9))
    await driver.store.steps.settle(lease, cut)
    run = await driver.get(run_id)
    assert run.usage.input_tokens == 9
    assert (await driver.store.runs.conversation(run.conversation_id)).usage.input_tokens == 9


async def test_a_child_has_what_is_left_of_the_budget(driver: Family) -> None:
    submitted = await driver.submit(agent=LEAD, budget=Budget(tokens=1000, tool_calls=5, seconds=60))
    lease = await driver.claim(submitted.deliveries[0])
    asked = (ToolCall(id="c1", name="agent_researcher", arguments='{"message": "look"}'),)
    verdict = Continue(
        Message(role="assistant", tool_calls=asked),
        calls=(OpenCall(asked[0], idempotent=True, kind=REMOTE),),
        usage=Usage(model_calls=1, input_tokens=300, output_tokens=100),
    )
    (delivery,) = (await driver.store.steps.settle(lease, verdict)).deliveries
    call = await driver.claim(delivery)
    await driver.begin_child(call)
    child, parent = await driver.get(child_id(call)), await driver.get(submitted.run_id)
    assert child.budget is not None
    assert (child.budget.tokens, child.budget.tool_calls) == (600, 5)
    assert parent.times.started_at is not None
    assert (child.times.deadline - parent.times.started_at).total_seconds() == 60


async def test_a_child_has_no_more_than_the_policy_allows(driver: Family) -> None:
    _, (lease,) = await driver.lead(budget=Budget(tokens=1000))
    capped = Subagent(agent=RESEARCHER, budget=Budget(tokens=50, cost_usd=1.5))
    await driver.store.children.begin(lease, capped, "look")
    assert (await driver.get(child_id(lease))).budget == Budget(tokens=50, cost_usd=1.5, tool_calls=None, seconds=None)


async def test_without_budget_nothing_begins(driver: Family) -> None:
    _, (lease,) = await driver.lead(budget=Budget(tokens=5))
    await driver.redis.hset(keys.run(lease.run_id), "input_tokens", 6)
    with pytest.raises(BudgetUsed):
        await driver.begin_child(lease)
    await driver.redis.hdel(keys.run(lease.run_id), "input_tokens")


async def test_a_deleted_child_is_not_begun_again(driver: Family) -> None:
    _, (lease,) = await driver.lead()
    begun = await driver.begin_child(lease)
    await driver.end(await driver.claim(begun.deliveries[0], "w2"))
    await driver.store.control.delete_run(child_id(lease))
    assert await driver.store.children.of(lease) is None
    with pytest.raises(ChildBarred, match="gone"):
        await driver.begin_child(lease)


async def test_a_run_has_no_more_children_than_it_may(driver: Family) -> None:
    run_id, (lease,) = await driver.lead()
    many = [{"run_id": f"run_{n}", "step": f"0/{n}", "agent": "x"} for n in range(limit_of("children"))]
    await driver.redis.hset(keys.run(run_id), "children", orjson.dumps(many))
    with pytest.raises(ChildBarred, match="full"):
        await driver.begin_child(lease)
    await driver.redis.hdel(keys.run(run_id), "children")


async def test_the_conversations_secrets_stay_with_it(driver: Family) -> None:
    _, (lease,) = await driver.waiting()
    assert lease.secrets_at == ""
    assert lease.submitted_by is None


async def test_a_child_is_its_parents_tenants(driver: Family) -> None:
    tag = "aaaaaa"
    with within(Reach(tag)):
        run_id, (lease,) = await driver.waiting()
        assert {tenant_of(each) for each in (run_id, lease.run_id, lease.conversation_id)} == {tag}
        await driver.follow([await driver.store.runs.cancel(run_id)])
        assert (await driver.get(lease.run_id)).status is RunStatus.CANCELLING
        await driver.store.steps.settle(lease, Finish(None, StopReason.CANCELLED))
    owned = f"{{p00}}:@{tag}:runs"
    assert await driver.redis.zscore(owned, lease.run_id) is not None
    assert await driver.redis.zscore("{p00}:runs", lease.run_id) is None


async def test_who_spoke_into_the_run_above_is_no_second_person_below(driver: Family) -> None:
    submitted = await driver.store.runs.submit(Submission(input="hello", agent=LEAD), by="ann")
    first = await driver.claim(submitted.deliveries[0])
    await driver.store.control.act(submitted.run_id, [say("and mind this")], by="bob")
    call = await driver.claim((await driver.ask_agents(first, "c1"))[0])
    begun = await driver.begin_child(call)
    await driver.leave(call)
    lease = await driver.claim(begun.deliveries[0], "w2")
    assert lease.submitted_by == "ann"
    await driver.store.steps.settle(lease, calls("t1", approval=["t1"], second_person=["t1"]))
    for name in ("ann", "bob"):
        with pytest.raises(StateConflict) as conflict:
            await driver.store.control.act(lease.run_id, [approve()], by=name)
        assert conflict.value.code == "second_person_required"
    acted = await driver.store.control.act(lease.run_id, [approve()], by="cid")
    assert [delivery.step for delivery in acted.settled.deliveries] == ["1/t1"]


async def test_a_call_of_an_agent_may_need_an_approval(driver: Family) -> None:
    run_id, lease = await driver.begin(agent=LEAD)
    call = ToolCall(id="c1", name="agent_researcher", arguments='{"message": "look"}')
    opened = OpenCall(call, idempotent=True, awaits="approval", timeout=60.0, kind=REMOTE)
    await driver.store.steps.settle(lease, Continue(Message(role="assistant", tool_calls=(call,)), calls=(opened,)))
    assert (await driver.get(run_id)).status is RunStatus.REQUIRES_ACTION
    (delivery,) = (await driver.act(run_id, approve())).settled.deliveries
    assert (delivery.queue, delivery.step) == ("model", "1/c1")
    await driver.begin_child(await driver.claim(delivery))


async def test_words_come_behind_what_the_run_waits_for(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    await driver.act(run_id, say("be quick"))
    (delivery,) = await driver.follow([await driver.end(lease)])
    (following,) = (await driver.reply(delivery)).deliveries
    assert driver.said(await driver.claim(following))[-2:] == ["found", "be quick"]


async def test_what_a_grandchild_used_late_reaches_all_above_it(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    call = await driver.claim((await driver.ask_agents(lease, "g1"))[0], "w2")
    begun = await driver.store.children.begin(call, Subagent(agent=RESEARCHER), "look")
    await driver.leave(call)
    below = await driver.claim(begun.deliveries[0], "w3")
    await driver.follow([await driver.store.runs.cancel(run_id)])
    cut = Finish(None, StopReason.CANCELLED, usage=Usage(model_calls=1, input_tokens=9))
    await driver.store.steps.settle(below, cut)
    for each in (run_id, lease.run_id, below.run_id):
        run = await driver.get(each)
        assert (run.status, run.usage.input_tokens) == (RunStatus.CANCELLED, 9)


async def test_a_lease_that_is_lost_while_it_waits_for_nobody_is_the_steps_loss(driver: Family) -> None:
    """The run that the call began goes on, and the call is tried by somebody else."""
    run_id, (lease,) = await driver.lead()
    begun = await driver.begin_child(lease)
    (lost,) = await driver.lose(lease)
    child = await driver.claim(begun.deliveries[0], "w2")
    await driver.end(child)
    again = await driver.claim(lost.deliveries[0], "w3")
    found = await driver.store.children.of(again)
    assert found is not None
    assert found.status is RunStatus.COMPLETED
    await driver.answer(again)
    assert (await driver.get(run_id)).step == 2


async def test_the_runs_below_a_run_are_listed_by_it(driver: Family) -> None:
    run_id, leases = await driver.waiting(*(f"c{number}" for number in range(5)))
    other, _ = await driver.waiting()
    begun = [lease.run_id for lease in reversed(leases)]
    # Between them are such as were deleted.
    rows = orjson.loads(await driver.redis.hget(keys.run(run_id), "children"))
    gone = [{"run_id": new_run_id("00"), "step": f"0/{n}", "agent": "x", "status": "failed"} for n in range(60)]
    await driver.redis.hset(keys.run(run_id), "children", orjson.dumps([*rows[:2], *gone, *rows[2:]]))
    runs = driver.store.runs
    assert [run.id for run in (await runs.list({"parent": run_id}, limit=50)).runs] == begun
    listed: list[str] = []
    cursor = None
    while cursor is not None or not listed:
        page = await runs.list({"parent": run_id}, limit=2, cursor=cursor)
        listed, cursor = [*listed, *(run.id for run in page.runs)], page.next_cursor
    assert listed == begun
    await driver.end(leases[3])
    assert [run.id for run in (await runs.list({"parent": run_id, "status": "completed"}, limit=7)).runs] == [
        leases[3].run_id
    ]
    (only,) = (await runs.list({"parent": other}, limit=7)).runs
    assert (await runs.list({"parent": only.id}, limit=7)).runs == []
    assert (await runs.list({"parent": leases[0].run_id, "tag": "x"}, limit=7)).runs == []
    with within(Reach("aaaaaa")):
        assert (await runs.list({"parent": run_id}, limit=7)).runs == []


@pytest.mark.parametrize("how", ["retry", "fork"])
async def test_a_finished_child_is_not_run_again(driver: Family, how: str) -> None:
    """Its answer is in the log: a run that goes on with its parent, or repeats a later step of it, has that."""
    run_id, (lease,) = await driver.waiting()
    (woken,) = await driver.follow([await driver.end(lease)])
    (following,) = (await driver.reply(woken)).deliveries
    await driver.give_up(await driver.claim(following))
    runs = len(await driver.redis.keys("*:run:*"))
    again = await driver.store.control.retry(run_id, Retry(from_step=2 if how == "fork" else None))
    (delivery,) = again.deliveries
    model_step = await driver.claim(delivery)
    assert await driver.results(again.run_id) == [("c1", "found")]
    await driver.end(model_step)
    run = await driver.get(again.run_id)
    assert (run.status, run.children) == (RunStatus.COMPLETED, ())
    assert len(await driver.redis.keys("*:run:*")) == runs + 1
    assert [child.run_id for child in (await driver.get(run_id)).children] == [lease.run_id]
