"""The gate in front of the providers, in two worker processes on one fake Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from palaver.config.providers import Provider
from palaver.config.settings import Settings
from palaver.errors import ErrorClass, Failure, ProviderDetails
from palaver.processes.tasks import end
from palaver.schemas.endpoints import Endpoint
from palaver.schemas.models import AgentSpec, Usage
from palaver.steps.leases import Delivery, Lease
from palaver.steps.verdicts import Postpone, RetryAfter, Verdict
from palaver.store import Store
from palaver.store.fleet.provider_states import ProviderUsage
from palaver.store.fleet.providers import Cooling
from palaver.store.redis import keys
from palaver.store.scripting.contracts.providers import Wait
from palaver.tools.service import gate_of_service
from palaver.vocabulary.lifecycle import WaitReason
from tests.contract.clock import TurnedDatabase, TurnedRedis, turned_clock
from tests.contract.store_driver import StoreDriver
from tests.waiting import aeventually
from workers.models.limit_keys import LimitKeys, limit_keys_of
from workers.models.provider_limiter import ProviderLimiter
from workers.models.provider_permit import ProviderPermit
from workers.sources.containment import CallLeft
from workers.steps.service_permit import ServicePermit

NOTHING = Usage()
URL = "http://127.0.0.1:1/v1"
PROVIDERS = {
    "free": Provider(base_url=URL),
    "other": Provider(base_url=URL),
    "narrow": Provider(base_url=URL, max_in_flight=1),
    "counted": Provider(base_url=URL, tokens_per_minute=1000),
    "paced": Provider(base_url=URL, requests_per_minute=60),
    "whole": Provider(base_url=URL, rate_limit_scope="provider"),
}


class CountingRedis(TurnedRedis):
    """Counts what it is asked."""

    asked = 0

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        self.asked += 1
        return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


class Worker:
    """A worker process's gate."""

    def __init__(self, server: TurnedDatabase, settings: Settings | None = None) -> None:
        self.server = server
        self.redis = server.client(CountingRedis)
        settings = settings or Settings(redis_url="redis://127.0.0.1:1/0")
        store = Store(self.redis, settings)
        self.driver = StoreDriver(store, self.redis)
        self.published: list[Delivery] = []
        self.limiter = ProviderLimiter(store, PROVIDERS, self.published.extend, 0.05)

    async def lease(self, provider: str) -> Lease:
        """A step that wants to call a provider's model."""
        model = provider if "/" in provider else f"{provider}/echo"
        _, lease = await self.driver.begin(agent=AgentSpec(model=model))
        return lease

    def permit(self, lease: Lease, used: Usage = NOTHING) -> ProviderPermit:
        """Around the calls of one attempt, with a prompt of 400 bytes."""
        return self.limiter.permit(lease, lambda: 400, lambda: used)

    async def refused(self, lease: Lease) -> Wait | None:
        """Why the lease may not call now; None if it may."""
        permit = self.permit(lease)
        async with permit as wait:
            return wait or permit.begin_call()

    async def limited(self, lease: Lease, retry_after: float | None = 30.0) -> Verdict:
        """The provider refused the lease's call with a 429."""
        failure = Failure.of(ErrorClass.RATE_LIMITED, retry_after=retry_after)
        return await self.limiter.apply(lease, RetryAfter(0.5, failure))

    @asynccontextmanager
    async def hearing(self) -> AsyncIterator[None]:
        """While it listens."""
        task = asyncio.create_task(self.limiter.listen())
        try:
            lease = await self.lease("free")

            async def passes_without_asking() -> bool:
                before = self.redis.asked
                return await self.refused(lease) is None and self.redis.asked == before

            await aeventually(passes_without_asking)
            yield
        finally:
            await end(task)


@pytest.fixture
def workers() -> tuple[Worker, Worker]:
    server = TurnedDatabase()
    return Worker(server), Worker(server)


async def test_a_cool_down_is_heard_by_the_other_worker(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    async with one.hearing(), two.hearing():
        lease, waits, other = await one.lease("free"), await two.lease("free"), await two.lease("other")
        began = time.monotonic()
        verdict = await one.limited(lease)
        assert isinstance(verdict, RetryAfter)
        assert verdict.delay == 30
        assert await one.refused(await one.lease("free"))
        refused = await aeventually(lambda: two.refused(waits))
        assert refused is not None
        assert refused.seconds + time.monotonic() - began > 29
        assert refused.seconds < 32
        before = two.redis.asked
        assert await two.refused(other) is None
        assert two.redis.asked == before


@pytest.mark.parametrize(("provider", "other_waits"), [("free", False), ("whole", True)])
async def test_other_models_of_a_provider_wait_only_where_its_limits_are_about_all(
    workers: tuple[Worker, Worker], provider: str, other_waits: bool
) -> None:
    one, two = workers
    async with one.hearing(), two.hearing():
        same, other = await two.lease(f"{provider}/echo"), await two.lease(f"{provider}/other")
        await one.limited(await one.lease(f"{provider}/echo"))
        assert await aeventually(lambda: two.refused(same))
        assert (await two.refused(other) is not None) == other_waits
        assert (await one.refused(await one.lease(f"{provider}/other")) is not None) == other_waits
        (state,) = await one.driver.store.providers.state([provider])
        assert [each.model for each in state.cooling] == [None if other_waits else "echo"]
        assert (state.model_cools_until("other") is not None) == other_waits
        assert state.model_cools_until("echo") == state.cooling_until is not None
        assert state.cooldowns == 1


async def test_a_crowd_that_waits_for_one_model_takes_no_place_at_its_provider(
    workers: tuple[Worker, Worker],
) -> None:
    one, two = workers
    async with one.hearing(), two.hearing():
        await one.limited(await one.lease("narrow/echo"))
        crowd = [await two.lease("narrow/echo") for _ in range(5)]
        assert await aeventually(lambda: two.refused(crowd[0]))
        for lease in crowd:
            refused = await two.refused(lease)
            assert refused is not None
            assert refused.code == "cooldown"
        assert await two.refused(await two.lease("narrow/other")) is None


async def test_a_worker_that_cannot_hear_asks_each_time(workers: tuple[Worker, Worker]) -> None:
    one, unsubscribed = workers
    lease = await unsubscribed.lease("free")
    before = unsubscribed.redis.asked
    assert await unsubscribed.refused(lease) is None
    assert unsubscribed.redis.asked > before
    await one.limited(await one.lease("free"))
    assert await unsubscribed.refused(await unsubscribed.lease("free"))


async def test_a_worker_that_begins_to_listen_learns_what_it_missed(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    await one.limited(await one.lease("other"))
    async with two.hearing():
        assert await two.refused(await two.lease("other"))


UNREACHED = Failure.of(ErrorClass.CONNECTION, provider=ProviderDetails("narrow", "echo"))
REFUSED = Failure.of(ErrorClass.CONNECTION, code="connect_refused", provider=ProviderDetails("free", "echo"))


async def fails(worker: Worker, failure: Failure = REFUSED, times: int = 5) -> float | None:
    """So many calls fail: when the last one may ask again, if there is an outage."""
    out = None
    for _ in range(times):
        out = await worker.limiter.met_outage(await worker.lease("free"), failure, set())
    return None if out is None else out.seconds


@pytest.mark.slow
async def test_an_outage_is_heard_by_the_other_worker_and_ends_with_the_answer_to_a_probe(
    workers: tuple[Worker, Worker],
) -> None:
    one, two = workers
    async with one.hearing(), two.hearing():
        waits = await two.lease("free")
        assert await fails(one, times=4) is None
        assert await two.refused(waits) is None
        assert await fails(one, times=1) is not None

        async def is_out() -> bool:
            refused = await two.refused(waits)
            return refused is not None and refused.failure is not None

        await aeventually(is_out)
        assert two.limiter.is_circuit_open(LimitKeys("free", "free/other"))
        # It is over, and a call that was under way all the time says so.
        two.limiter.answered(waits, ("free", "free/echo"), set())
        await aeventually(lambda: not one.limiter.is_circuit_open(LimitKeys("free", "free/echo")))

        async def may_call() -> bool:
            return await two.refused(waits) is None

        await aeventually(may_call)


@pytest.mark.slow
async def test_an_outage_of_an_endpoint_is_that_of_its_scheme_host_and_port(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    wrong, right = ("https://127.0.0.1:1/v1", "http://127.0.0.1:1/v1")

    async def lease(worker: Worker, base_url: str) -> Lease:
        endpoint = Endpoint(base_url=base_url)
        leased = await worker.lease("free")
        agent = leased.agent.model_copy(update={"model": endpoint.called("inline/echo"), "endpoint": endpoint})
        return replace(leased, agent=agent)

    async with one.hearing(), two.hearing():
        out = [await one.limiter.met_outage(await lease(one, wrong), REFUSED, set()) for _ in range(5)]
        assert out[4] is not None
        waits, goes_on = await lease(two, wrong), await lease(two, right)
        await aeventually(lambda: two.limiter.is_circuit_open(limit_keys_of(waits.agent)))
        refused = await two.refused(waits)
        assert refused is not None
        assert refused.failure is not None
        assert await two.refused(goes_on) is None
        assert not two.limiter.is_circuit_open(limit_keys_of(goes_on.agent))
    late = Worker(two.server)
    late.limiter = ProviderLimiter(
        late.driver.store, PROVIDERS, late.published.extend, 0.05, names=("inline:127.0.0.1",)
    )
    async with late.hearing():
        assert late.limiter.is_circuit_open(limit_keys_of(waits.agent)), "a worker that begins to listen learns of it"


async def test_a_call_that_goes_on_later_ends_an_outage_of_its_service_if_that_answered(
    workers: tuple[Worker, Worker],
) -> None:
    one, _ = workers
    gate = gate_of_service("crm")
    out = LimitKeys(gate, gate)
    async with one.hearing():
        left = {answered: ServicePermit(one.limiter, await one.lease("free"), "crm") for answered in (False, True)}
        for permit in left.values():
            assert await permit.__aenter__() is None
            permit.begin()
        for _ in range(5):
            await one.limiter.report_failure(await one.lease("free"), gate, REFUSED, set(), of_request=False)
        await aeventually(lambda: one.limiter.is_circuit_open(out))
        for answered, permit in left.items():
            verdict = Postpone(5.0, "crm", WaitReason.REMOTE_TASK, begun=True, kept="{}")
            error = CallLeft(verdict, answered=answered)
            await permit.__aexit__(CallLeft, error, None)
            if not answered:
                await one.lease("free")
                assert one.limiter.is_circuit_open(out)
        await aeventually(lambda: not one.limiter.is_circuit_open(out))


async def test_one_worker_that_reaches_nobody_holds_up_no_other(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    async with one.hearing(), two.hearing():
        lease = await two.lease("free")
        assert await fails(one, times=1) is None
        clock = asyncio.get_running_loop().time
        later = clock() + 0.1
        await aeventually(lambda: clock() > later)
        two.limiter.answered(lease, ("free", "free/echo"), set())
        assert await fails(one, times=4) is not None

        async def is_well() -> bool:
            return not (await one.driver.store.providers.state(["free"]))[0].outages

        await aeventually(is_well)


async def test_a_worker_tells_what_it_knows_with_a_failure(workers: tuple[Worker, Worker]) -> None:
    one, _ = workers
    lease = await one.lease("free")
    for _ in range(3):
        assert await fails(one, times=4) is None
        one.limiter.answered(lease, ("free", "free/echo"), set())


async def test_a_request_that_fails_however_often_shows_no_more_than_once(workers: tuple[Worker, Worker]) -> None:
    one, _ = workers
    lease = await one.lease("free")
    broken = Failure.of(ErrorClass.PROVIDER_ERROR, provider=ProviderDetails("free", "echo", 500))
    away = Failure.of(ErrorClass.PROVIDER_ERROR, provider=ProviderDetails("free", "echo", 503))
    tries = [replace(lease, try_number=number) for number in range(1, 10)]
    assert [await one.limiter.met_outage(each, broken, set()) for each in tries] == [None] * len(tries)
    # What speaks of the service counts each time.
    told = [await one.limiter.met_outage(each, away, set()) for each in tries]
    assert [out is not None for out in told] == [False] * 3 + [True] * 6


BROKEN = Failure.of(ErrorClass.PROVIDER_ERROR, provider=ProviderDetails("free", "echo", 500))


async def test_one_step_alone_waits_after_its_fifth_failure_and_nobody_else_does(
    workers: tuple[Worker, Worker],
) -> None:
    one, two = workers
    lease = await one.lease("free")
    attempts = [replace(lease, attempt=number, try_number=number, elapsed=float(number)) for number in range(1, 6)]
    told = [await one.limiter.met_outage(each, BROKEN, set()) for each in attempts]
    assert told[:4] == [None] * 4
    assert told[4] is not None
    assert told[4].seconds == 5
    later = await one.limiter.met_outage(replace(attempts[4], out_for=60.0), BROKEN, set())
    assert later is not None
    assert later.seconds == (60 + 5) / 4
    assert await two.refused(await two.lease("free")) is None
    (state,) = await one.driver.store.providers.state(["free"])
    assert state.outages == ()


async def test_a_request_fails_by_its_attempts_as_soon_as_another_worker_was_answered(
    workers: tuple[Worker, Worker],
) -> None:
    one, two = workers
    async with one.hearing(), two.hearing():
        lease = replace(await one.lease("free"), attempt=5, elapsed=5.0)
        answered, gates = await two.lease("free"), ("free", "free/echo")
        two.limiter.answered(answered, gates, set())
        assert await one.limiter.met_outage(lease, BROKEN, set()) is not None

        async def fails_by_itself() -> bool:
            return await one.limiter.met_outage(replace(lease, out_for=5.0), BROKEN, set()) is None

        await aeventually(fails_by_itself)


async def test_an_answer_that_comes_while_a_step_alone_waits_is_told_once(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    async with one.hearing(), two.hearing():
        lease = replace(await one.lease("free"), attempt=5, elapsed=5.0)
        assert await one.limiter.met_outage(lease, BROKEN, set()) is not None
        answered, gates = await two.lease("free"), ("free", "free/echo")

        async def fails_by_itself() -> bool:
            two.limiter.answered(answered, gates, set())
            return await one.limiter.met_outage(replace(lease, out_for=5.0), BROKEN, set()) is None

        await aeventually(fails_by_itself)
        before = two.redis.asked
        two.limiter.answered(answered, gates, set())
        assert two.redis.asked == before


async def test_an_answer_that_is_an_error_shows_that_the_provider_is_there(workers: tuple[Worker, Worker]) -> None:
    one, _ = workers
    busy = ProviderDetails("free", "echo", 503)
    assert await fails(one, times=4) is None
    assert await fails(one, Failure.of(ErrorClass.PROVIDER_ERROR, provider=busy), times=1) is None
    assert await fails(one, times=4) is None
    assert await fails(one, Failure.of(ErrorClass.PROVIDER_ERROR, provider=busy), times=4) is not None
    (state,) = await one.driver.store.providers.state(["free"])
    assert [outage.model for outage in state.outages] == ["echo"]


@pytest.mark.slow
async def test_a_probe_that_shows_nothing_is_made_by_the_next(workers: tuple[Worker, Worker]) -> None:
    settings = Settings(redis_url="redis://127.0.0.1:1/0", probe_interval=0.1)
    server = TurnedDatabase()
    one, two = Worker(server, settings), Worker(server, settings)
    await fails(one)
    leases = {one: await one.lease("free"), two: await two.lease("free")}

    async def probes(worker: Worker) -> ProviderPermit | None:
        permit = worker.permit(leases[worker])
        return permit if await permit.__aenter__() is None else None

    first = await aeventually(lambda: probes(one))
    assert first is not None
    assert first.probes == {"free"}
    assert await probes(two) is None
    await first.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)
    second = await aeventually(lambda: probes(two))
    assert second is not None
    await second.__aexit__(None, None, None)


async def crowded(server: TurnedDatabase) -> tuple[Worker, Lease]:
    """A model is out whose provider lets one call through at a time; its lease is the first to probe."""
    worker = Worker(server, Settings(redis_url="redis://127.0.0.1:1/0", probe_interval=1.0))
    busy = Failure.of(ErrorClass.PROVIDER_ERROR, provider=ProviderDetails("narrow", "echo", 503))
    out, lease = None, None
    while out is None:
        lease = await worker.lease("narrow")
        out = await worker.limiter.met_outage(lease, busy, set())
    assert lease is not None
    return worker, lease


async def state_of(worker: Worker) -> ProviderUsage:
    (state,) = await worker.driver.store.providers.state(["narrow"])
    return state


async def waits_for(worker: Worker, lease: Lease) -> str | None:
    """The code of what holds a call up."""
    refused = await worker.refused(lease)
    return None if refused is None else refused.code


@pytest.mark.slow
async def test_a_model_is_probed_as_soon_as_its_full_provider_has_room() -> None:
    worker, lease = await crowded(TurnedDatabase())
    async with worker.permit(await worker.lease("narrow/well")):
        (outage,) = (await state_of(worker)).outages
        await worker.driver.behind(outage.next_probe)
        refused = await worker.refused(lease)
        assert refused is not None
        assert refused.code == "max_in_flight"
    permit = worker.permit(lease)
    async with permit:
        assert permit.probes == {"narrow/echo"}


@pytest.mark.slow
async def test_a_model_that_is_out_takes_no_room_at_its_provider() -> None:
    worker, _ = await crowded(TurnedDatabase())
    for _ in range(3):
        assert await waits_for(worker, await worker.lease("narrow")) == "outage"
    state = await state_of(worker)
    assert (state.in_flight, state.requests_last_minute, state.tokens_last_minute) == (0, 0, 0)
    assert await worker.refused(await worker.lease("narrow/well")) is None


@pytest.mark.slow
async def test_who_waits_for_a_model_that_is_out_is_in_nobodys_way_at_its_full_provider() -> None:
    worker, first = await crowded(TurnedDatabase())
    waiting = [await worker.lease("narrow") for _ in range(3)]
    async with worker.hearing():
        async with worker.permit(await worker.lease("narrow/well")):
            # It is full, which is not what they wait for.
            assert [await waits_for(worker, lease) for lease in waiting] == ["outage"] * 3
        assert await worker.refused(await worker.lease("narrow/well")) is None
        (outage,) = (await state_of(worker)).outages
        assert outage.waiting == 4
        # Whoever's turn it is waits for room, as anybody else does, and keeps its turn.
        await worker.driver.behind(outage.next_probe)
        async with worker.permit(await worker.lease("narrow/well")):
            assert [await waits_for(worker, first) for _ in range(2)] == ["max_in_flight"] * 2
        permit = worker.permit(first)
        async with permit:
            assert permit.probes == {"narrow/echo"}


@pytest.mark.slow
async def test_who_was_in_line_when_its_model_went_out_leaves_it() -> None:
    server = TurnedDatabase()
    worker = Worker(server, Settings(redis_url="redis://127.0.0.1:1/0", probe_interval=1.0))
    waiting = [await worker.lease("narrow") for _ in range(3)]
    async with worker.hearing():
        async with worker.permit(await worker.lease("narrow/well")):
            assert [await waits_for(worker, lease) for lease in waiting] == ["max_in_flight"] * 3
            other, _ = await crowded(server)
            assert other is not worker
        # One of them has the place now, for some seconds.
        assert [await waits_for(worker, lease) for lease in waiting] == ["outage"] * 3
        assert await worker.refused(await worker.lease("narrow/well")) is None


@pytest.mark.slow
async def test_who_probes_a_provider_need_not_be_the_one_to_probe_its_model() -> None:
    with turned_clock() as clock:
        worker, _ = await crowded(TurnedDatabase())
        for _ in range(5):
            await worker.limiter.met_outage(await worker.lease("narrow/well"), UNREACHED, set())
        other = await worker.lease("narrow")

        async def probes_the_provider() -> bool:
            clock.now += 0.05
            permit = worker.permit(other)
            async with permit:
                return {*permit.probes} == {"narrow"}

        await aeventually(probes_the_provider)


@pytest.mark.slow
async def test_places_are_renewed_while_others_come_and_go(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    holder = await one.lease("narrow")
    async with one.permit(holder):
        renewing = asyncio.create_task(one.limiter.renew_places())
        for number in range(20):
            await one.refused(await one.lease("counted"))
            await one.limiter.met_outage(await one.lease(f"free/{number}"), REFUSED, set())
        assert not renewing.done()
        await end(renewing)
        assert await two.refused(await two.lease("narrow"))


async def test_an_outage_that_nobody_speaks_of_any_more_is_over(workers: tuple[Worker, Worker]) -> None:
    one, _ = workers
    one.limiter._hear(Cooling("free/gone", 0.05, 1.0))
    assert one.limiter.is_circuit_open(LimitKeys("free", "free/gone"))
    await aeventually(lambda: not one.limiter.is_circuit_open(LimitKeys("free", "free/gone")))
    one.limiter._hear(Cooling("other", 30.0, 1.0))
    assert one.limiter._failing_since.keys() == one.limiter._cooling_until.keys() == {"other"}


async def test_of_very_many_models_the_oldest_answer_is_forgotten(workers: tuple[Worker, Worker]) -> None:
    one, _ = workers
    lease = await one.lease("free")
    one.limiter.answered(lease, ("free", "free/first"), set())
    for number in range(2000):
        one.limiter.answered(lease, (f"free/{number}",), set())
    assert len(one.limiter._answered_at) == 1000
    assert {"free", "free/1999", "free/1500"} < one.limiter._answered_at.keys()
    assert "free/first" not in one.limiter._answered_at


@pytest.mark.parametrize(("asked", "cools"), [(None, 1.0), (7.0, 7.0), (1e9, 300.0)])
async def test_how_long_a_provider_cools_down(
    workers: tuple[Worker, Worker], asked: float | None, cools: float
) -> None:
    verdict = await workers[0].limited(await workers[0].lease("free"), asked)
    assert isinstance(verdict, RetryAfter)
    assert verdict.delay == cools


@pytest.mark.slow
async def test_only_a_rate_limit_cools_down(workers: tuple[Worker, Worker]) -> None:
    one, _ = workers
    for error_class in set(ErrorClass) - {ErrorClass.RATE_LIMITED}:
        verdict = RetryAfter(0.5, Failure.of(error_class, retry_after=30.0))
        assert await one.limiter.apply(await one.lease("free"), verdict) is verdict
    fallback = RetryAfter(0.0, Failure.of(ErrorClass.RATE_LIMITED, retry_after=30.0), fallback=True)
    assert await one.refused(await one.lease("free")) is None
    assert await one.limiter.apply(await one.lease("free"), fallback) == fallback
    assert await one.refused(await one.lease("free"))


async def test_without_redis_a_rate_limit_is_retried_all_the_same(workers: tuple[Worker, Worker]) -> None:
    one, _ = workers
    lease = await one.lease("free")
    one.redis.connection_pool.connection_kwargs["server"].connected = False
    verdict = await one.limited(lease)
    assert isinstance(verdict, RetryAfter)
    assert verdict.delay == 0.5


async def test_a_cool_down_between_two_calls_ends_the_attempt(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    async with one.hearing():
        lease = await one.lease("free")
        permit = one.permit(lease)
        async with permit as wait:
            assert (wait, permit.begin_call()) == (None, None)
            began = time.monotonic()
            await two.limited(await two.lease("free"))
            await aeventually(lambda: one.refused(lease))
            second = permit.begin_call()
        assert second is not None
        assert second.code == "cooldown"
        assert second.seconds + time.monotonic() - began > 29
        assert second.seconds < 42


async def test_what_a_call_raises_goes_further(workers: tuple[Worker, Worker]) -> None:
    one, _ = workers

    async def fail() -> None:
        permit = one.permit(await one.lease("narrow"))
        async with permit:
            permit.begin_call()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    (state,) = await one.driver.store.providers.state(["narrow"])
    assert state.in_flight == 0


async def test_a_failed_call_gives_its_place_to_the_next(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    holder, waits = await one.lease("narrow"), await two.lease("narrow")
    with suppress(ZeroDivisionError):
        async with one.permit(holder):
            refused = await two.refused(waits)
            assert refused is not None
            await two.driver.store.steps.settle(waits, Postpone(refused.seconds, refused.code))
            raise ZeroDivisionError
    assert [(each.run_id, each.queue) for each in one.published] == [(waits.run_id, "model.recovered")]
    lease = await two.driver.claim(one.published[0])
    assert await two.refused(lease) is None


async def test_a_waiter_that_is_gone_does_not_keep_its_place(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    holder = await one.lease("narrow")
    async with one.permit(holder):
        gone, waits = await two.lease("narrow"), await two.lease("narrow")
        for lease in (gone, waits):
            assert await two.refused(lease)
            await two.driver.postpone(lease, 60, "max_in_flight")
        await two.driver.store.runs.cancel(gone.run_id)
    assert [each.run_id for each in one.published] == [waits.run_id]


async def test_one_that_cannot_be_woken_gives_its_place_to_the_next(workers: tuple[Worker, Worker]) -> None:
    one, two = workers
    async with one.permit(await one.lease("narrow")):
        broken, waits = await two.lease("narrow"), await two.lease("narrow")
        for lease in (broken, waits):
            assert await two.refused(lease)
            await two.driver.postpone(lease, 60, "max_in_flight")
        await two.redis.delete(keys.steps(broken.run_id))
        await two.redis.set(keys.steps(broken.run_id), "no steps")
    assert [each.run_id for each in one.published] == [waits.run_id]


async def test_what_hinders_the_waking_of_others_is_no_failure_of_the_own_attempt(
    workers: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = workers
    waits = await two.lease("narrow")
    await two.driver.postpone(waits, 60, "max_in_flight")
    providers = one.driver.store.providers
    admit = providers.admit

    async def admit_and_wake(*args: Any, **options: Any) -> Any:
        return replace(await admit(*args, **options), woken=(f"{waits.conversation_id}/{waits.run_id}/{waits.step}",))

    def publish(_: object) -> None:
        raise ConnectionError

    monkeypatch.setattr(providers, "admit", admit_and_wake)
    monkeypatch.setattr(one.limiter, "_publish", publish)
    assert await one.refused(await one.lease("narrow")) is None


async def test_tokens_are_counted_as_the_provider_reports_them(workers: tuple[Worker, Worker]) -> None:
    one, _ = workers
    async with one.permit(await one.lease("counted"), Usage(input_tokens=700, output_tokens=50)):
        pass
    (state,) = await one.driver.store.providers.state(["counted"])
    assert state.tokens_last_minute == 750
    async with one.permit(await one.lease("narrow")):
        pass
    (state,) = await one.driver.store.providers.state(["narrow"])
    # Without a report the estimate stands: four bytes a token.
    assert state.tokens_last_minute == 100


async def test_further_calls_of_an_attempt_do_not_wait_and_those_who_come_later_do(
    workers: tuple[Worker, Worker],
) -> None:
    one, two = workers
    with turned_clock():
        async with one.permit(await one.lease("paced"), Usage(model_calls=10)):
            pass
        (state,) = await one.driver.store.providers.state(["paced"])
        assert state.requests_last_minute == 10
        refused = await two.refused(await two.lease("paced"))
    assert refused is not None
    assert refused.code == "requests_per_minute"
    assert refused.seconds == pytest.approx(6, abs=0.001)
