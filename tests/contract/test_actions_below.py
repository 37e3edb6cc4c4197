"""Calls of a child that wait for somebody show on the runs above it, as long as they wait (ADR 0097)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from palaver.schemas.actions import PendingBelow
from palaver.schemas.models import Run, Subagent
from palaver.steps.leases import Lease
from palaver.store.redis import keys
from palaver.vocabulary.limits import limit_of
from tests.contract.store_driver import approve, deny, output
from tests.contract.test_agent_calls import RESEARCHER, Family


@pytest.fixture
def driver(store: Any, redis: Any) -> Family:
    return Family(store, redis)


def shown(run: Run) -> list[tuple[str, str, str]]:
    """The run, the call and its type of what waits below."""
    return [(action.run_id, action.call_id, action.type) for action in run.pending_below]


async def below(driver: Family, lease: Lease) -> Lease:
    """The lease of the first step of a run that the leased model step's call begins."""
    (delivery,) = await driver.ask_agents(lease, "g1")
    call = await driver.claim(delivery, "w2")
    begun = await driver.store.children.begin(call, Subagent(agent=RESEARCHER), "look")
    await driver.leave(call)
    return await driver.claim(begun.deliveries[0], "w3")


async def kinds(driver: Family, run_id: str) -> Sequence[str]:
    return [kind for kind in await driver.kinds(run_id) if kind.startswith("child.")]


async def test_they_show_with_the_way_down_and_go_away_when_answered(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    assert not (await driver.get(run_id)).needs_somebody
    await driver.ask(lease, "a1", "o1", approval=("a1",), client=("o1",))
    run, child = await driver.get(run_id), await driver.get(lease.run_id)
    assert shown(run) == [(child.id, "a1", "approval"), (child.id, "o1", "client_tool")]
    assert [action.path for action in run.pending_below] == [(child.id,)] * 2
    assert [PendingBelow(**each.model_dump(), run_id=child.id, path=(child.id,)) for each in child.pending_actions] == [
        *run.pending_below
    ]
    assert (run.needs_somebody, run.children[0].pending_actions) == (True, 2)
    required, _ = [event for event in await driver.events(run_id) if event.type == "child.action_required"]
    assert required.data["action"] == child.pending_actions[0].model_dump(mode="json")
    assert (required.data["child_run_id"], required.data["path"]) == (child.id, [child.id])
    await driver.act(child.id, deny(child.pending_actions[0].id, "no"), by="ann")
    assert shown(await driver.get(run_id)) == [(child.id, "o1", "client_tool")]
    await driver.act(child.id, output("o1"))
    run = await driver.get(run_id)
    assert (shown(run), run.needs_somebody, run.children[0].pending_actions) == ([], False, 0)
    *_, denied, answered = await driver.events(run_id)
    assert (denied.data["decision"], denied.data["by"], denied.data["call_id"]) == ("deny", "ann", "a1")
    assert answered.data["decision"] == "output"


async def test_all_runs_above_show_them(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    grandchild = await below(driver, lease)
    await driver.ask(grandchild, "a1", approval=("a1",))
    top, middle = await driver.get(run_id), await driver.get(lease.run_id)
    assert [action.path for action in top.pending_below] == [(lease.run_id, grandchild.run_id)]
    assert [action.path for action in middle.pending_below] == [(grandchild.run_id,)]
    paths = [
        event.data["path"]
        for each in (run_id, lease.run_id)
        for event in await driver.events(each)
        if event.type == "child.action_required"
    ]
    assert paths == [[lease.run_id, grandchild.run_id], [grandchild.run_id]]
    await driver.act(grandchild.run_id, approve(top.pending_below[0].id))
    for each in (run_id, lease.run_id):
        run = await driver.get(each)
        assert (run.pending_below, run.children[0].pending_actions) == ((), 0)


async def test_own_and_those_below_are_counted_together(driver: Family) -> None:
    run_id, (first, second) = await driver.waiting("c1", "c2")
    grandchild = await below(driver, first)
    await driver.ask(grandchild, "a1", "a2", approval=("a1", "a2"))
    await driver.ask(second, "a1", approval=("a1",))
    run = await driver.get(run_id)
    assert [child.pending_actions for child in run.children] == [2, 1]
    assert sorted(shown(run)) == sorted(
        [
            (second.run_id, "a1", "approval"),
            (grandchild.run_id, "a1", "approval"),
            (grandchild.run_id, "a2", "approval"),
        ]
    )
    # The nearest first.
    assert run.pending_below[0].run_id == second.run_id


async def test_they_go_away_when_they_expire(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    await driver.ask(lease, "a1", approval=("a1",))
    await driver.hasten(lease.run_id, "1/a1")
    assert (await driver.get(run_id)).pending_below == ()
    assert (await driver.events(run_id))[-1].data["decision"] == "expired"


async def test_they_go_away_when_the_child_is_cancelled(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    await driver.ask(lease, "a1", approval=("a1",))
    await driver.follow([await driver.store.runs.cancel(lease.run_id)])
    run = await driver.get(run_id)
    assert (run.pending_below, run.children[0].pending_actions) == ((), 0)
    assert await kinds(driver, run_id) == ["child.action_required", "child.action_resolved"]


async def test_what_waits_below_a_child_that_ended_is_nobodys(driver: Family) -> None:
    """The grandchild has not looked yet whether it is still waited for."""
    run_id, (lease,) = await driver.waiting()
    grandchild = await below(driver, lease)
    await driver.ask(grandchild, "a1", approval=("a1",))
    settled = await driver.store.runs.cancel(lease.run_id)
    run = await driver.get(run_id)
    assert (run.pending_below, run.children[0].pending_actions) == ((), 0)
    assert (await driver.get(lease.run_id)).pending_below == ()
    await driver.follow([settled])
    assert (await driver.get(lease.run_id)).children[0].pending_actions == 0


async def test_nothing_is_shown_in_the_feed_of_a_run_that_has_ended(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    await driver.ask(lease, "a1", approval=("a1",))
    settled = await driver.store.runs.cancel(run_id)
    assert (await driver.get(run_id)).pending_below == ()
    await driver.follow([settled])
    assert (await driver.kinds(run_id))[-1] == "run.finished"


async def test_a_repeated_answer_of_the_store_shows_nothing_twice(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    with driver.answers_get_lost():
        await driver.ask(lease, "a1", approval=("a1",))
        (action,) = (await driver.get(run_id)).pending_below
        await driver.act(lease.run_id, approve(action.id))
    assert await kinds(driver, run_id) == ["child.action_required", "child.action_resolved"]
    assert (await driver.get(run_id)).children[0].pending_actions == 0


async def test_whose_they_are_is_known_after_they_are_answered_too(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    grandchild = await below(driver, lease)
    await driver.ask(grandchild, "a1", "a2", approval=("a1", "a2"))
    first, second = (await driver.get(run_id)).pending_below
    await driver.act(grandchild.run_id, approve(first.id))
    owners = await driver.store.children.owners_of_actions(run_id, (first.id, second.id, "a2", "nothing"))
    assert owners == dict.fromkeys((first.id, second.id, "a2"), grandchild.run_id)
    assert await driver.store.children.owners_of_actions(grandchild.run_id, (first.id,)) == {}


async def test_so_many_are_shown(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    names = [f"a{number}" for number in range(limit_of("pending_below") + 3)]
    await driver.ask(lease, *names, approval=names)
    run = await driver.get(run_id)
    assert (len(run.pending_below), run.children[0].pending_actions) == (limit_of("pending_below"), len(names))


async def test_a_child_that_is_gone_shows_nothing(driver: Family) -> None:
    run_id, (lease,) = await driver.waiting()
    await driver.ask(lease, "a1", approval=("a1",))
    kept = await driver.redis.hgetall(keys.run(lease.run_id))
    await driver.redis.delete(keys.run(lease.run_id))
    assert (await driver.get(run_id)).pending_below == ()
    await driver.redis.hset(keys.run(lease.run_id), mapping=kept)
