"""The queues that tools name: each has its own window, its own turns, and workers that may not be there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import orjson
import pytest

from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from palaver.schemas.models import Run, ToolCall
from palaver.schemas.tenants import CapsChange
from palaver.steps.leases import Delivery, Lease, Settled, Stray
from palaver.steps.wire import delivery_in, in_redis
from palaver.store import Store
from palaver.store.fleet.fleet import WorkerReport
from palaver.store.redis import fleet_keys, keys
from palaver.store.redis.reach import Reach, within
from palaver.store.tenants.tenants import Tenant
from palaver.tools import tool
from palaver.vocabulary.lifecycle import RunStatus, StepState
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.step_kinds import AT_ONCE, QUEUES, WINDOW
from tests.contract.store_driver import OWN, PAUSE, RESUME, StoreDriver, approve, calls
from tests.contract.tool_worker import tool_worker
from tests.redis_cluster import ON_CLUSTER
from workers.broker.reading import let_in

CODE = f"queue:{OWN}"


@pytest.fixture
async def known(driver: StoreDriver) -> StoreDriver:
    """A store whose workers have named the queue."""
    await driver.store.queues.publish((OWN,))
    return driver


async def _look(driver: StoreDriver, *, attended: bool = False) -> list[Delivery]:
    """A sweeper looks whether workers take from the queue: what it is to publish."""
    moved = await driver.store.due.attend(OWN, attended=attended, ready_for=-60)
    return [delivery for settled in moved for delivery in settled.deliveries]


async def _lacked(driver: StoreDriver) -> dict[str, int]:
    return {each.code: each.steps for each in await driver.store.lacking.read()}


async def _waits(driver: StoreDriver, run_id: str) -> str | None:
    run = await driver.get(run_id)
    return None if run.waiting is None else f"{run.waiting.reason} {run.waiting.code}"


async def test_a_step_goes_to_the_queue_that_its_tool_named(driver: StoreDriver) -> None:
    run_id, deliveries = await driver.turn("c1", queue=OWN)
    assert [(each.queue, each.task_name) for each in deliveries] == [("tools.gpu", "palaver.tool_step")]
    assert [(each.queue, each.kind) for each in (await driver.get(run_id)).current_steps] == [(OWN, "tool")]
    elsewhere = deliveries[0]._replace(queue="tools")
    assert await driver.try_claim(elsewhere) == Stray("not of this queue")
    settled = await driver.answer(await driver.claim(deliveries[0]))
    assert [each.queue for each in settled.deliveries] == ["model.recovered"]


async def test_a_worker_of_several_queues_takes_from_each(driver: StoreDriver) -> None:
    for queue in (None, OWN, "big"):
        _, (delivery,) = await driver.turn("c1", queue=queue)
        claimed = await driver.store.steps.claim(
            delivery.run_id, delivery.conversation_id, delivery.step,
            queues=("big", OWN), worker="w", nonce="n", known=None,
        )  # fmt: skip
        assert isinstance(claimed, Lease) == (queue is not None)


async def _retried(driver: StoreDriver, run_id: str, delivery: Delivery) -> Sequence[Delivery]:
    await driver.retry(await driver.claim(delivery))
    return (await driver.hasten(run_id, delivery.step))[0].deliveries


async def _handed_back(driver: StoreDriver, run_id: str, delivery: Delivery) -> Sequence[Delivery]:
    return (await driver.hand_back(await driver.claim(delivery), begun=False)).deliveries


async def _lost(driver: StoreDriver, run_id: str, delivery: Delivery) -> Sequence[Delivery]:
    return (await driver.lose(await driver.claim(delivery)))[0].deliveries


async def _paused(driver: StoreDriver, run_id: str, delivery: Delivery) -> Sequence[Delivery]:
    await driver.act(run_id, PAUSE)
    return (await driver.act(run_id, RESUME)).settled.deliveries


async def _unclaimed(driver: StoreDriver, run_id: str, delivery: Delivery) -> Sequence[Delivery]:
    (found,) = await driver.store.due.unclaimed(OWN, -60, 10)
    return (await driver.store.due.sweep([found], unclaimed_after=-60))[0].deliveries


@pytest.mark.parametrize(
    "comes_back", [_retried, _handed_back, _lost, _paused, _unclaimed], ids=lambda each: each.__name__[1:]
)
async def test_it_stays_there_whatever_happens(
    driver: StoreDriver, comes_back: Callable[[StoreDriver, str, Delivery], Awaitable[Sequence[Delivery]]]
) -> None:
    run_id, (delivery,) = await driver.turn("c1", idempotent=("c1",), queue=OWN)
    (again,) = await comes_back(driver, run_id, delivery)
    assert again.queue.removesuffix(".recovered") == "tools.gpu"
    await driver.claim(again)


async def test_so_it_does_behind_an_approval(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("c1", approval=("c1",), queue=OWN)
    (delivery,) = (await driver.act(run_id, approve())).settled.deliveries
    assert delivery.queue == "tools.gpu"
    await driver.answer(await driver.claim(delivery))


async def test_each_queue_has_a_window_of_its_own(known: StoreDriver) -> None:
    driver = known
    ids = [f"c{number}" for number in range(WINDOW + 3)]
    _, own = await driver.turn(*ids, queue=OWN)
    _, others = await driver.turn(*ids)
    assert [len(own), len(others)] == [AT_ONCE, AT_ONCE]
    depths = await driver.store.due.depths()
    assert {queue: depth for queue, (depth, _) in depths.items()} == {"model": 0, "tools": len(ids), OWN: len(ids)}
    for delivery in own:
        lease = await driver.claim(delivery)
    assert [each.queue for each in lease.deliveries] == ["tools.gpu"]
    (tenant,) = (await driver.store.waiting_tenants.by_queue())[OWN]
    assert tenant.waiting == WINDOW - 1


async def _two_calls_in_one_place(driver: StoreDriver) -> tuple[Tenant, Settled]:
    """A tenant that may have one step in flight, and the verdict that opens two of the queue."""
    tenant = await driver.store.tenants.create("acme")
    await driver.store.caps.change(tenant.tag, CapsChange(max_in_flight=1))
    with within(Reach(tenant.tag)):
        _, lease = await driver.begin()
        return tenant, await driver.store.steps.settle(lease, calls("a", "b", queue=OWN))


async def test_a_tenant_below_its_cap_has_a_turn_in_each_queue_again(known: StoreDriver) -> None:
    driver = known
    _, opened = await _two_calls_in_one_place(driver)
    (first,) = opened.deliveries
    assert (await driver.store.waiting_tenants.by_queue())[OWN][0].at_cap
    settled = await driver.answer(await driver.claim(first))
    (second,) = settled.deliveries
    assert second.queue == "tools.gpu"
    await driver.answer(await driver.claim(second))


async def test_a_cap_that_is_lifted_lets_them_go(known: StoreDriver) -> None:
    driver = known
    tenant, opened = await _two_calls_in_one_place(driver)
    await driver.claim(opened.deliveries[0])
    await driver.store.caps.change(tenant.tag, CapsChange(max_in_flight=None))
    assert [each.queue for each in await driver.store.due.fill()] == ["tools.gpu"]


async def test_a_queue_without_a_worker_is_what_its_runs_wait_for(known: StoreDriver) -> None:
    driver = known
    run_id, (delivery,) = await driver.turn("c1", queue=OWN)
    assert await _look(driver) == []
    assert await _waits(driver, run_id) == f"no_worker {CODE}"
    assert await _lacked(driver) == {CODE: 1}
    assert await _look(driver) == []
    assert (await driver.kinds(run_id)).count("run.waiting") == 1, "it is said once"
    # It is ready all the while: an autoscaler sees it, and whoever comes takes it.
    assert (await driver.store.due.depths())[OWN][0] == 1
    await driver.claim(delivery)
    assert await _waits(driver, run_id) is None
    assert await _lacked(driver) == {}


async def test_what_waits_for_its_turn_there_says_so_as_well(known: StoreDriver) -> None:
    driver = known
    ids = [f"c{number}" for number in range(WINDOW + 3)]
    _, deliveries = await driver.turn(*ids, queue=OWN)
    await driver.store.due.attend(OWN, attended=False, ready_for=-60, limit=2)
    assert await _lacked(driver) == {CODE: 4}, "two that are delivered, and two of the backlog"
    await driver.store.due.attend(OWN, attended=False, ready_for=-60, limit=2)
    assert await _lacked(driver) == {CODE: 6}, "two more of the backlog"
    await driver.store.due.attend(OWN, attended=False, ready_for=-60, limit=WINDOW)
    assert await _lacked(driver) == {CODE: len(ids)}
    for left, delivery in enumerate(deliveries, 1):
        lease = await driver.claim(delivery)
        assert await _lacked(driver) == {CODE: len(ids) - left}
    (following,) = lease.deliveries
    await driver.claim(following)
    assert await _lacked(driver) == {CODE: len(ids) - len(deliveries) - 1}


async def test_it_is_no_more_once_a_worker_is_there(known: StoreDriver) -> None:
    driver = known
    run_id, (delivery,) = await driver.turn("c1", queue=OWN)
    await _look(driver)
    await _look(driver, attended=True)
    assert await _waits(driver, run_id) is None
    assert await _lacked(driver) == {}
    await driver.claim(delivery)


async def test_it_is_said_again_after_another_step_began(known: StoreDriver) -> None:
    driver = known
    run_id, lease = await driver.begin()
    both = calls("c1", "c2", queue=OWN)
    both = type(both)(both.message, calls=(both.calls[0], calls("c2").calls[0]))
    _, other = (await driver.store.steps.settle(lease, both)).deliveries
    await _look(driver)
    await driver.answer(await driver.claim(other))
    assert await _waits(driver, run_id) is None
    await _look(driver)
    assert await _waits(driver, run_id) == f"no_worker {CODE}"


async def _cancelled(driver: StoreDriver, run_id: str) -> None:
    await driver.store.runs.cancel(run_id)


async def _pause(driver: StoreDriver, run_id: str) -> None:
    await driver.act(run_id, PAUSE)


async def _deadline(driver: StoreDriver, run_id: str) -> None:
    await driver.redis.hset(keys.run(run_id), "deadline", 2)
    await driver.hasten(run_id, "end")


@pytest.mark.parametrize("ends", [_cancelled, _pause, _deadline], ids=lambda each: each.__name__[1:])
async def test_who_waits_no_more_lacks_nothing(
    known: StoreDriver, ends: Callable[[StoreDriver, str], Awaitable[None]]
) -> None:
    run_id, _ = await known.turn("c1", queue=OWN)
    await _look(known)
    await ends(known, run_id)
    assert await _lacked(known) == {}
    assert await _look(known) == []


async def _unattended_since(driver: StoreDriver, run_id: str, seconds: float) -> None:
    step = orjson.loads(await driver.redis.hget(keys.steps(run_id), "1/c1"))
    text = orjson.dumps({**step, "unattended": step["unattended"] - int(seconds * 1000)})
    await driver.redis.hset(keys.steps(run_id), "1/c1", text)


async def test_after_an_hour_it_fails(known: StoreDriver) -> None:
    driver = known
    run_id, _ = await driver.turn("c1", queue=OWN)
    await _look(driver)
    await _unattended_since(driver, run_id, limit_of("no_worker") - 60)
    await _look(driver)
    assert (await driver.get(run_id)).status is RunStatus.RUNNING
    await _unattended_since(driver, run_id, 61)
    await _look(driver)
    run: Run = await driver.get(run_id)
    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert (run.error["class"], run.error["step"]) == ("no_worker", "1/c1")
    assert "the queue gpu" in run.error["message"]
    assert await _lacked(driver) == {}
    assert [call for call, _ in await driver.results(run_id)] == ["c1"], "its call is sealed"


async def test_a_repeat_of_the_look_changes_nothing(known: StoreDriver) -> None:
    run_id, _ = await known.turn("c1", queue=OWN)
    with known.answers_get_lost():
        await _look(known)
        await _look(known, attended=True)
        await _look(known)
    assert (await known.kinds(run_id)).count("run.waiting") == 2
    assert await _lacked(known) == {CODE: 1}


async def test_a_look_at_a_step_that_went_on_does_nothing(known: StoreDriver) -> None:
    run_id, (delivery,) = await known.turn("c1", queue=OWN)
    await known.claim(delivery)
    before = await known.everything()
    await _look(known)
    await _look(known, attended=True)
    assert await known.everything() == before
    assert (await known.get(run_id)).current_steps[0].state is StepState.LEASED


async def test_entries_of_a_run_that_is_gone_are_forgotten(known: StoreDriver) -> None:
    run_id, _ = await known.turn("c1", queue=OWN)
    await _look(known)
    await known.redis.delete(keys.run(run_id), keys.steps(run_id))
    await _look(known)
    assert await known.store.due.unclaimed(OWN, -60, 10) == []
    await known.store.lacking.forget_stale()
    assert await _lacked(known) == {}
    # Its conversation is left, which was not deleted by hand.
    await known.redis.flushall()


async def test_queues_are_known_by_their_workers(driver: StoreDriver) -> None:
    queues = driver.store.queues
    assert await queues.all() == QUEUES
    await queues.publish(("tools", "model"))
    assert not await driver.redis.exists(fleet_keys.WORKER_QUEUES), "who names none pays nothing"
    await queues.publish(("tools", "big", OWN))
    assert await queues.all() == (*QUEUES, "big", OWN)
    fleet = driver.store.fleet
    await fleet.report(WorkerReport("w1", (OWN, "tools"), 0, 1, draining=False))
    await fleet.report(WorkerReport("w2", ("big",), 0, 1, draining=True))
    await fleet.report(WorkerReport("w3", ("big",), 0, 1, draining=False, refused=("eval",)))
    assert await fleet.taken_from() == {OWN, "tools"}


@tool(queue=OWN)
async def at_the_gpu() -> str:
    """For workers with one."""
    return "42"


@tool
async def anywhere() -> str:
    """For all workers."""
    return "42"


async def test_a_worker_counts_its_steps_by_queue(
    store: Store, redis: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that names another queue by now counts for one that the worker has."""
    queues, asked = ("tools", OWN), (("anywhere", None), ("at_the_gpu", OWN), ("at_the_gpu", "tools"), ("gone", OWN))
    async with (
        tool_worker(store, redis, settings, monkeypatch, at_the_gpu, anywhere, queues=queues) as worker,
        AsyncExitStack() as steps,
    ):
        for name, queue in asked:
            run_id, (delivery,) = await worker.driver.turn("c1", queue=queue)
            active = steps.enter_context(worker.runtime.working_on(run_id, delivery.step))
            active.lease = replace(await worker.driver.claim(delivery), call=ToolCall(id="c1", name=name))
        steps.enter_context(worker.runtime.working_on("run_00" + "1" * 26, "1/c1"))
        await worker.runtime.report()
        (report,) = await store.fleet.workers()
    assert (report.queues, report.in_flight, report.by_queue) == (queues, 4, (2, 2))
    assert [report.in_flight_of(queue) for queue in queues] == [2, 2]


async def test_no_more_queues_than_the_limit_says(driver: StoreDriver) -> None:
    queues, names = driver.store.queues, [f"q{number}" for number in range(limit_of("tool_queues"))]
    await queues.publish(names)
    with pytest.raises(
        ConfigurationError, match=r"gpu would be one queue too many: there may be 32, and others have q0"
    ):
        await queues.publish((OWN,))
    await queues.publish(names[:3])
    assert OWN not in await queues.own()
    # One that nobody has had for an hour makes room.
    seconds = await driver.redis.zscore(fleet_keys.WORKER_QUEUES, "q7")
    await driver.redis.zadd(fleet_keys.WORKER_QUEUES, {"q7": seconds - limit_of("no_worker") - 60})
    await queues.publish((OWN,))
    assert {OWN, "q7"} & {*await queues.own()} == {OWN}


async def test_a_queue_is_forgotten_at_last(driver: StoreDriver) -> None:
    await driver.store.queues.publish(("old", OWN))
    seconds = await driver.redis.zscore(fleet_keys.WORKER_QUEUES, "old")
    await driver.redis.zadd(fleet_keys.WORKER_QUEUES, {"old": seconds - limit_of("tools_remembered") - 60})
    await driver.store.queues.publish((OWN,))
    assert await driver.store.queues.own() == (OWN,)


async def test_metrics_have_the_queues(known: StoreDriver) -> None:
    await known.turn("c1", "c2", queue=OWN)
    await known.store.fleet.report(WorkerReport("w1", (OWN, "tools"), 1, 3, draining=False))
    samples: Any = await known.store.measuring.read(())
    assert samples["palaver_queue_ready"][OWN,] == 2
    assert samples["palaver_queue_capacity"] == {(OWN,): 3, ("tools",): 3}
    await _look(known)
    assert samples["palaver_waiting"]["no_worker",] == 0
    assert (await known.store.measuring.read(()))["palaver_waiting"]["no_worker",] == 1


@pytest.mark.skipif(ON_CLUSTER, reason="a cluster is no broker")
async def test_scripts_send_to_the_queue_themselves(redis: Any, settings: Settings) -> None:
    driver = StoreDriver(Store(redis, settings, send=True), redis)
    lease = await driver.claim(await driver.first_of((await driver.submit()).run_id))
    assert (await driver.ask(lease, "c1", queue=OWN)) == []
    (raw,) = await redis.lrange("tools.gpu", 0, -1)
    message = let_in(raw, "tools.gpu")
    assert message is not None
    delivery = delivery_in("tools.gpu", message["headers"], message["body"].encode())
    assert delivery is not None
    assert orjson.loads(raw) == orjson.loads(in_redis(delivery, "palaver@redis"))
    for queue in ("model", "tools.gpu"):
        await redis.delete(queue)
    await driver.store.feeds.close()
