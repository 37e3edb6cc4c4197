"""Who is taken for dead (ADR 0016), as a real server sees the connections of workers that live and die here."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from features.stack.ports import free_port
from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError
from palaver.processes.existence import named_processes
from palaver.processes.tasks import end
from palaver.steps.leases import Delivery, Lease, Renewal
from palaver.store import Store
from palaver.store.fleet.first_look import FirstLook, Suspect
from palaver.store.fleet.fleet import WorkerReport
from palaver.store.redis import fleet_keys, keys
from palaver.store.redis.connection import now_ms
from palaver.vocabulary.step_kinds import MODEL
from tests.contract.clock import Clock
from tests.contract.store_driver import StoreDriver
from tests.redis_cluster import ON_CLUSTER
from tests.waiting import aeventually
from workers.loops.deaths import PATIENCE, DeathWatch
from workers.loops.keeper import Keeper
from workers.sources.toolbox import Toolbox
from workers.steps.capabilities import Capabilities
from workers.steps.histograms import Histograms
from workers.steps.runtime import Runtime

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(ON_CLUSTER, reason="about the connections of one server: test_cluster_deaths has a cluster's"),
]

LEASE = 15.0


class Worker:
    """As much of a worker as the fleet sees: a report, a connection that hears cancels, and leases."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.store = Store.connect(Settings(redis_url=url, shards=1, lease_seconds=LEASE))
        self._listening: asyncio.Task[None] | None = None

    async def speak(self, queue: str = "model", *, connected: bool = True, processes: str = "") -> None:
        """Report."""
        report = WorkerReport(self.name, (queue,), in_flight=1, capacity=9, draining=False, processes=processes)
        await self.store.fleet.report(report, connected=connected)

    async def hear(self) -> None:
        """Listen to cancels, from when this returns on."""
        self._listening = asyncio.create_task(self._listen())
        await aeventually(self.heard)

    async def heard(self) -> bool:
        """Whether somebody is subscribed to its channel."""
        ((_, listeners),) = await self.store._redis.pubsub_numsub(fleet_keys.cancel_channel(self.name))
        return bool(listeners)

    async def go_deaf(self) -> None:
        """Listen no more."""
        if self._listening is not None:
            await end(self._listening)
        self._listening = None

    async def drop_connections(self) -> None:
        """Close all but the one that listens; the next command opens another one."""
        await self.store._redis.connection_pool.disconnect()

    async def die(self) -> None:
        """As the kernel does it to a process: all connections are closed, and nothing is said."""
        await self.go_deaf()
        await self.drop_connections()

    async def _listen(self) -> None:
        listener = self.store.fleet.cancels(self.name)
        try:
            async for _ in listener.listen():
                pass
        finally:
            with suppress(Exception):
                await listener.close()


class World:
    """A worker that may die, and one that watches."""

    def __init__(self, driver: StoreDriver, one: Worker, other: Worker, url: str) -> None:
        self.driver = driver
        self.worker = one
        self.watcher = other
        self.url = url
        self.clock = Clock()
        self.published: list[Delivery] = []
        self.watch = self.another_watch()

    def another_watch(self, *seen: Suspect) -> DeathWatch:
        """One more, which has ``seen`` these at its first look."""
        return DeathWatch(
            self.watcher.store,
            self.published.extend,
            self.watcher.name,
            LEASE,
            self.clock.time,
            first_look=lambda: seen,
        )

    async def began_with(self, *seen: Suspect, cut: bool = False) -> None:
        """Begin to watch, after a first look at which these were gone, and perhaps having been ``cut`` off since."""
        self.watch = self.another_watch(*seen)
        if cut:
            self.watch.was_cut()
        await self.watch.begin()

    async def begin(self) -> Lease:
        """A lease of the worker."""
        submitted = await self.driver.submit()
        lease = await self.driver.claim(submitted.deliveries[0], self.worker.name)
        # What is claimed in the very millisecond in which a worker is first missed is left to its lease.
        claimed_at = await now_ms(self.driver.redis)
        await aeventually(lambda: self._is_later_than(claimed_at))
        return lease

    async def _is_later_than(self, then: int) -> bool:
        return await now_ms(self.driver.redis) > then

    async def look_again(self, after: float = PATIENCE + 0.1) -> None:
        """Look now, and after so many seconds."""
        await self.watch.look()
        self.clock.now += after
        await self.watch.look()

    async def kept(self, lease: Lease) -> bool:
        """Whether the worker still has it."""
        return await self.driver.store.steps.renew([lease]) == [Renewal.PROLONGED]


@pytest.fixture
async def world(driver: StoreDriver, server: RedisServer) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        workers = Worker("w1", server.url), Worker("w2", server.url)
        for each in workers:
            stack.push_async_callback(each.store.close)
            stack.push_async_callback(each.go_deaf)
            await each.hear()
            await each.speak()
        yield World(driver, *workers, server.url)


@pytest.fixture
def ended() -> int:
    """A process that was here, and has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


async def test_the_steps_of_a_dead_worker_go_on_at_once(world: World) -> None:
    first, second = await world.begin(), await world.begin()
    await world.worker.die()
    await world.look_again(PATIENCE / 2)
    assert world.published == [], "it may be back in a moment"
    await world.look_again()
    assert [each.run_id for each in world.published] == [first.run_id, second.run_id]
    again = await world.driver.claim(world.published[0], "w3")
    assert again.fence > first.fence
    assert not await world.kept(first)
    assert [each.id for each in await world.driver.store.fleet.workers()] == ["w2"]


async def test_a_process_that_has_ended_needs_no_second_look(world: World, ended: int) -> None:
    """Its kernel says so: it will not be back."""
    lease = await world.begin()
    await world.worker.speak(processes=named_processes(ended))
    await world.worker.die()
    await world.watch.look()
    assert [each.run_id for each in world.published] == [lease.run_id]
    assert not await world.kept(lease)


async def test_a_process_that_is_there_has_its_second_look(world: World) -> None:
    """All its connections were cut at the moment of the look; it is this test, and it lives."""
    lease = await world.begin()
    await world.worker.speak(processes=named_processes(os.getpid()))
    await world.worker.die()
    await world.watch.look()
    assert world.published == []
    assert await world.kept(lease)


@pytest.mark.parametrize("what", ["host", "boot", "namespace"])
async def test_a_process_of_another_machine_has_its_second_look(world: World, ended: int, what: str) -> None:
    """There the same id is somebody else."""
    names = named_processes(ended)
    pids, host, boot, namespace = names.split(" ")
    elsewhere = {
        "host": f"{pids} another {boot} {namespace}",
        "boot": f"{pids} {host} {uuid4()} {namespace}",
        "namespace": f"{pids} {host} {boot} pid:[1]",
    }
    lease = await world.begin()
    await world.worker.speak(processes=elsewhere[what])
    await world.worker.die()
    await world.watch.look()
    assert await world.kept(lease)


async def test_a_process_that_has_ended_and_is_connected_is_not_judged(world: World, ended: int) -> None:
    """Whatever is wrong there: both have to say the same."""
    lease = await world.begin()
    await world.worker.speak(processes=named_processes(ended))
    await world.worker.go_deaf()
    await world.look_again()
    assert await world.kept(lease)


async def test_leases_of_others_stay_though_its_process_has_ended(world: World, ended: int) -> None:
    submitted = await world.driver.submit()
    lease = await world.driver.claim(submitted.deliveries[0], "w3")
    await world.worker.speak(processes=named_processes(ended))
    await world.worker.die()
    await world.watch.look()
    assert world.published == []
    assert await world.kept(lease)


async def test_a_child_that_has_ended_is_left_to_its_parent(world: World, ended: int) -> None:
    lease = await world.begin()
    await world.worker.speak("tools", processes=named_processes(ended, os.getpid()))
    await world.worker.die()
    await world.watch.look()
    assert await world.kept(lease)


async def test_a_child_whose_parent_has_ended_too_needs_no_second_look(world: World, ended: int) -> None:
    lease = await world.begin()
    await world.worker.speak("tools", processes=named_processes(ended, ended))
    await world.worker.die()
    await world.watch.look()
    assert [each.run_id for each in world.published] == [lease.run_id]


async def test_the_last_look_is_no_later_than_it_has_to_be(world: World) -> None:
    await world.worker.die()
    await world.watch.look()
    world.clock.now += PATIENCE * 0.7
    again = await world.watch.look()
    assert again == pytest.approx(PATIENCE * 0.3, abs=0.001)
    world.clock.now += again + 0.001
    await world.watch.look()
    assert [each.id for each in await world.driver.store.fleet.workers()] == ["w2"]


async def test_leases_of_others_stay(world: World) -> None:
    submitted = await world.driver.submit()
    lease = await world.driver.claim(submitted.deliveries[0], "w3")
    await world.worker.die()
    await world.look_again()
    assert world.published == []
    assert await world.kept(lease)


async def test_who_only_hears_nothing_lives(world: World) -> None:
    """Its connection for cancels was cut and does not come back, perhaps because the process is frozen."""
    lease = await world.begin()
    await world.worker.go_deaf()
    await world.look_again()
    assert await world.kept(lease)


async def test_who_only_lost_its_other_connections_lives(world: World) -> None:
    lease = await world.begin()
    await world.worker.drop_connections()
    await world.look_again()
    assert await world.kept(lease)


async def test_who_spoke_in_between_lives(world: World) -> None:
    lease = await world.begin()
    await world.worker.die()
    await world.watch.look()
    await world.worker.speak()
    await world.worker.drop_connections()
    world.clock.now += PATIENCE + 0.1
    await world.watch.look()
    assert await world.kept(lease)


async def test_who_was_back_in_between_lives(world: World) -> None:
    lease = await world.begin()
    await world.worker.die()
    await world.watch.look()
    await world.worker.hear()
    await world.watch.look()
    await world.worker.die()
    world.clock.now += PATIENCE + 0.1
    await world.watch.look()
    assert await world.kept(lease)


async def test_a_lease_that_was_renewed_since_stays(world: World, redis: Any) -> None:
    """Whatever the watcher believes: the script that ends the lease sees that the worker has renewed it."""
    renewed, silent = await world.begin(), await world.begin()
    await world.worker.die()
    await world.watch.look()
    assert await world.kept(renewed)
    claimed = await world.begin()
    world.clock.now += PATIENCE + 0.1
    await world.watch.look()
    assert [each.run_id for each in world.published] == [silent.run_id]
    assert await world.kept(renewed)
    assert await world.kept(claimed)


async def test_connections_to_another_server_say_nothing(world: World, redis: Any) -> None:
    """After a restart, or a failover to a replica, all connections are gone at once."""
    lease = await world.begin()
    await redis.hset(fleet_keys.worker("w1"), "server", "another")
    await world.worker.die()
    await world.look_again()
    assert await world.kept(lease)


@pytest.mark.parametrize("fields", [{"connection": 0}, {"server": ""}], ids=["no connection", "no server"])
async def test_a_worker_that_may_not_ask_who_it_is_is_not_judged(
    world: World, redis: Any, fields: dict[str, Any]
) -> None:
    lease = await world.begin()
    await redis.hset(fleet_keys.worker("w1"), mapping=fields)
    await world.worker.die()
    await world.look_again()
    assert await world.kept(lease)


async def test_who_keeps_no_connection_is_not_judged(world: World) -> None:
    """The main process of a tools worker opens one for each report of its vacant places."""
    await world.worker.speak(connected=False)
    await world.worker.die()
    await world.look_again()
    assert len(await world.driver.store.fleet.workers()) == 2


async def test_a_child_has_longer(world: World) -> None:
    """Its parent knows what it died of, and says so."""
    lease = await world.begin()
    await world.worker.speak("tools")
    await world.worker.die()
    await world.look_again(PATIENCE + 0.4)
    assert world.published == []
    world.clock.now += 0.2
    await world.watch.look()
    assert [each.run_id for each in world.published] == [lease.run_id]


async def test_a_worker_of_the_version_before_is_not_judged(world: World, redis: Any) -> None:
    lease = await world.begin()
    await redis.hdel(fleet_keys.worker("w1"), "server", "connection", "lease_ms")
    await world.worker.die()
    await world.look_again()
    assert await world.kept(lease)


async def test_after_an_outage_of_its_own_a_watcher_waits_for_a_lease(world: World) -> None:
    """The others may have been cut off with it, and need a moment longer to be back."""
    lease = await world.begin()
    await world.worker.die()
    world.watch.was_cut()
    await world.look_again(LEASE - 0.1)
    assert world.published == []
    world.clock.now += PATIENCE
    await world.look_again()
    assert not await world.kept(lease)


async def test_what_was_suspected_before_the_outage_does_not_count(world: World) -> None:
    lease = await world.begin()
    await world.worker.die()
    await world.watch.look()
    world.watch.was_cut()
    world.clock.now += LEASE + 0.1
    await world.watch.look()
    assert await world.kept(lease)


async def test_who_hears_nothing_itself_judges_nobody(world: World) -> None:
    lease = await world.begin()
    await world.worker.die()
    await world.watcher.go_deaf()
    await world.look_again()
    assert await world.kept(lease)


async def test_a_failed_look_is_an_outage(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = await world.begin()
    await world.worker.die()
    await world.watch.look()

    async def broken(_: str) -> Any:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(world.watcher.store.fleet, "call_roll", broken)
        with pytest.raises(ConnectionError):
            await world.watch.run()
    assert 2 * (PATIENCE + 0.1) < LEASE
    # What was suspected before is forgotten, and for the length of a lease nobody is suspected anew.
    await world.look_again()
    await world.look_again()
    assert await world.kept(lease)


async def test_where_a_look_takes_long_others_have_longer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = await world.begin()
    await world.worker.die()
    fleet = world.watcher.store.fleet
    call_roll = fleet.call_roll

    async def slow(asking: str) -> Any:
        world.clock.now += 0.3
        return await call_roll(asking)

    monkeypatch.setattr(fleet, "call_roll", slow)
    await world.look_again(PATIENCE + 0.1)
    assert world.published == []
    world.clock.now += 3.0
    await world.watch.look()
    assert not await world.kept(lease)


async def test_one_of_many_watchers_acts(world: World) -> None:
    await world.begin()
    await world.worker.die()
    watches = [world.watch, world.another_watch(), world.another_watch()]
    for _ in range(2):
        await asyncio.gather(*(each.look() for each in watches))
        world.clock.now += PATIENCE + 0.1
    assert len(world.published) == 1


async def test_in_a_large_fleet_each_looks_less_often(world: World, redis: Any) -> None:
    often = await world.watch.look()
    await redis.zadd(fleet_keys.WORKERS, {f"x{number}": 1 for number in range(78)})
    assert await world.watch.look() == 4 * often


async def test_who_was_cut_speaks_at_once_and_judges_nobody(world: World, redis: Any, server: RedisServer) -> None:
    """The engine's own keeper: by itself it would not speak again for a thousand seconds."""
    others = await subscribed(redis)
    async with engine(server, world.watch) as runtime:

        async def begun() -> bool:
            reported = [each.id for each in await runtime.store.fleet.workers()]
            return runtime.worker_id in reported and len(await subscribed(redis) - others) == 1

        await aeventually(begun)
        dead = await world.begin()
        submitted = await world.driver.submit()
        lease = await world.driver.claim(submitted.deliveries[0], runtime.worker_id)
        with runtime.working_on(lease.run_id, lease.step) as active:
            active.lease = lease
            (own,) = await subscribed(redis) - others
            await redis.client_kill_filter(_id=own)

            async def renewed() -> bool:
                far_away = await now_ms(redis) + 1_000_000
                return bool(await redis.zscore(keys.due("00"), f"{lease.run_id}/1") > far_away)

            await aeventually(renewed)
    await world.worker.die()
    await world.look_again()
    assert await world.kept(dead)


@asynccontextmanager
async def engine(server: RedisServer, deaths: DeathWatch) -> AsyncIterator[Runtime]:
    """What keeps the leases of a worker."""
    settings = Settings(redis_url=server.url, shards=1, lease_seconds=3000)
    able = Capabilities(Toolbox([]), {})
    runtime = Runtime(
        settings, Histograms(MODEL, places=0), queues=[MODEL.queue], node="n", capacity=1, capabilities=able
    )
    keeper = Keeper(runtime, deaths, lambda: None)
    chores = [asyncio.create_task(chore()) for chore in (keeper.listen, keeper.heartbeat)]
    try:
        yield runtime
    finally:
        await end(*chores)
        await runtime.store.close()


async def test_a_worker_whose_last_step_has_ended_says_so_before_its_next_heartbeat(
    world: World, redis: Any, server: RedisServer
) -> None:
    async with engine(server, world.watch) as runtime:

        async def reports(in_flight: int) -> bool:
            return (runtime.worker_id, in_flight) in [
                (each.id, each.in_flight) for each in await runtime.store.fleet.workers()
            ]

        await aeventually(lambda: reports(0))
        lease = await world.driver.claim((await world.driver.submit()).deliveries[0], runtime.worker_id)
        with runtime.working_on(lease.run_id, lease.step) as active:
            active.lease = lease
            for connection in await subscribed(redis):
                await redis.client_kill_filter(_id=connection)
            await aeventually(lambda: reports(1))
        await aeventually(lambda: reports(0))
        await world.driver.finish(lease)


async def subscribed(redis: Any) -> set[str]:
    """The connections that are subscribed to something."""
    return {each["id"] for each in await redis.client_list(_type="pubsub")}


async def test_a_server_that_does_not_tell_is_said_once(world: World, redis: Any, server: RedisServer) -> None:
    """The rights of an older deployment."""
    old = ["+@all", "-pubsub", "-client|list", "-client|id"]
    await redis.execute_command("ACL", "SETUSER", "old", "on", "nopass", "~*", "&*", *old)
    async with Redis.from_url(server.url, username="old", password="x") as client:
        fleet = Store(client, Settings(redis_url=server.url)).fleet
        await fleet.report(WorkerReport("w3", ("model",), 0, 1, draining=False))
        with pytest.raises(ConfigurationError, match=r"deploy/users\.acl"):
            await fleet.call_roll("w3")
    await redis.execute_command("ACL", "DELUSER", "old")


@pytest.fixture
async def first(world: World) -> AsyncIterator[FirstLook]:
    """The look of a process that starts."""
    look = FirstLook(Settings(redis_url=world.url))
    yield look
    await asyncio.to_thread(look.close)


async def test_the_first_look_is_taken_before_the_watch_begins(world: World, first: FirstLook) -> None:
    """So that the watch needs one more and not two."""
    lease = await world.begin()
    await world.worker.die()
    await asyncio.to_thread(first.take)
    (suspect,) = await asyncio.to_thread(first.suspects)
    assert suspect.first_seen.id == "w1"
    world.clock.now = suspect.since + PATIENCE
    await world.began_with(suspect)
    await world.watch.look()
    assert [each.run_id for each in world.published] == [lease.run_id]


async def test_a_first_look_that_was_a_moment_ago_is_not_enough(world: World, first: FirstLook) -> None:
    lease = await world.begin()
    await world.worker.die()
    await asyncio.to_thread(first.take)
    (suspect,) = await asyncio.to_thread(first.suspects)
    world.clock.now = suspect.since + PATIENCE / 2
    await world.began_with(suspect)
    await world.watch.look()
    assert await world.kept(lease)


async def test_who_spoke_since_the_first_look_lives(world: World, first: FirstLook) -> None:
    lease = await world.begin()
    await world.worker.die()
    await asyncio.to_thread(first.take)
    await world.worker.speak()
    await world.worker.drop_connections()
    (suspect,) = await asyncio.to_thread(first.suspects)
    world.clock.now = suspect.since + PATIENCE
    await world.began_with(suspect)
    await world.watch.look()
    assert await world.kept(lease)


async def test_who_was_cut_since_its_first_look_suspects_nobody(world: World, first: FirstLook, redis: Any) -> None:
    """All were, perhaps."""
    others = await subscribed(redis)
    await world.worker.die()
    await asyncio.to_thread(first.take)
    (own,) = await subscribed(redis) - others
    await redis.client_kill_filter(_id=own)
    assert await asyncio.to_thread(first.suspects) == ()


async def test_who_lives_is_not_suspected_by_a_first_look(world: World, first: FirstLook) -> None:
    await asyncio.to_thread(first.take)
    assert await asyncio.to_thread(first.suspects) == ()


async def test_a_first_look_that_nobody_answers_suspects_nobody(world: World) -> None:
    nowhere = FirstLook(Settings(redis_url=f"redis://127.0.0.1:{free_port()}/0"))
    await asyncio.to_thread(nowhere.take)
    assert nowhere.suspects() == ()
    await asyncio.to_thread(nowhere.close)


async def test_a_watch_that_was_cut_before_it_began_forgets_the_first_look(world: World, first: FirstLook) -> None:
    lease = await world.begin()
    await world.worker.die()
    await asyncio.to_thread(first.take)
    (suspect,) = await asyncio.to_thread(first.suspects)
    world.clock.now = suspect.since + PATIENCE
    await world.began_with(suspect, cut=True)
    world.clock.now += LEASE
    await world.watch.look()
    assert await world.kept(lease)


async def test_a_watch_begins_when_it_is_heard(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before that its looks would be worth nothing, and the first one would be forgotten."""
    fleet, answers = world.watcher.store.fleet, list[bool]()
    is_heard = fleet.is_heard

    async def noted(worker_id: str) -> bool:
        answers.append(await is_heard(worker_id))
        return answers[-1]

    monkeypatch.setattr(fleet, "is_heard", noted)
    await world.watcher.go_deaf()
    beginning = asyncio.create_task(world.watch.begin())

    async def was_asked_again() -> bool:
        return len(answers) > 1

    await aeventually(was_asked_again)
    assert not any(answers)
    assert not beginning.done()
    await world.watcher.hear()
    await beginning
