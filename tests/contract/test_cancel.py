"""An acknowledged cancel wins, and the log tells truthfully what happened."""

from __future__ import annotations

from collections import deque

import pytest

from palaver.errors import StaleLease, StateConflict, UnknownRun
from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.steps.leases import Delta, Lease, Renewal, Stray
from palaver.steps.verdicts import Continue, Finish, OpenCall
from palaver.store.fleet.fleet import Interruption
from palaver.vocabulary.ids import new_run_id
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from tests.contract.invariants import check_whole
from tests.contract.store_driver import INTERNAL, TOOL_ERROR, StoreDriver
from tests.waiting import aeventually

DENIED = "The user cancelled the request, so the tool call was denied."
BEGUN = "Cancelled after it had begun. It may or may not have taken effect."


async def test_cancel_before_anybody_began(driver: StoreDriver) -> None:
    submitted = await driver.submit()
    settled = await driver.store.runs.cancel(submitted.run_id, reason="changed my mind")

    assert settled.status == "cancelled"
    run = await driver.get(submitted.run_id)
    assert run.cancel is not None
    assert (run.cancel.mode, run.cancel.reason) == ("now", "changed my mind")
    assert run.cancel.stopped_ms == 0
    assert await driver.try_claim(submitted.deliveries[0]) == Stray("cancelled")


async def test_cancel_twice_changes_nothing(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    first = await driver.store.runs.cancel(run_id, reason="a")
    assert (await driver.store.runs.cancel(run_id, reason="b")) == first
    await driver.finish(lease, StopReason.CANCELLED)
    assert (await driver.store.runs.cancel(run_id)).status == "cancelled"

    run = await driver.get(run_id)
    assert run.cancel is not None
    assert run.cancel.reason == "a"
    assert (await driver.kinds(run_id)).count("run.cancelling") == 1


async def test_cancel_of_what_has_ended_says_so(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.finish(lease)

    with pytest.raises(StateConflict, match="completed") as refused:
        await driver.store.runs.cancel(run_id)
    assert refused.value.code == "run_ended"
    with pytest.raises(UnknownRun):
        await driver.store.runs.cancel(new_run_id("00"))
    with pytest.raises(UnknownRun):
        await driver.store.runs.cancel("nonsense")


async def test_the_worker_hears_of_it(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    async with driver.hearing("w1") as heard:
        settled = await driver.store.runs.cancel(run_id)

        assert settled.status == "cancelling"
        assert await aeventually(lambda: heard) == [Interruption(run_id, pausing=False)]
    assert await driver.store.steps.renew([lease]) == [Renewal.CANCELLING]


@pytest.mark.parametrize("brings", ["finish", "continue", "retry", "give up", "cancelled", "handed back", "lost"])
async def test_cancel_wins_over_whatever_the_model_step_brings(driver: StoreDriver, brings: str) -> None:
    run_id, lease = await driver.begin()
    await driver.store.runs.cancel(run_id)
    call = ToolCall(id="c1", name="calculator")
    match brings:
        case "finish":
            settled = await driver.finish(lease)
        case "continue":
            message = Message(role="assistant", tool_calls=(call,))
            settled = await driver.store.steps.settle(lease, Continue(message, calls=(OpenCall(call, True),)))
            assert await driver.results(run_id) == [("c1", DENIED)]
        case "retry":
            settled = await driver.retry(lease)
        case "give up":
            settled = await driver.give_up(lease)
        case "cancelled":
            partial = Message(role="assistant", content="I was ab", partial=True)
            settled = await driver.store.steps.settle(lease, Finish(partial, StopReason.CANCELLED))
        case "handed back":
            settled = await driver.hand_back(lease)
        case _:
            (settled,) = await driver.hasten(run_id, lease.step)

    assert (settled.status, settled.deliveries) == ("cancelled", ())
    run = await driver.get(run_id)
    assert (run.status, run.stop_reason, run.error) == (RunStatus.CANCELLED, StopReason.CANCELLED, None)


async def test_each_parallel_call_is_answered_truthfully_and_in_order(driver: StoreDriver) -> None:
    names = ("finished", "backing_off", "leased", "handed", "lost", "ready", "waiting")
    run_id, deliveries = await driver.turn(*names, idempotent=names)
    coming = deque(deliveries)

    async def claim(name: str, worker: str = "w1") -> Lease:
        delivery = coming.popleft()
        assert delivery.step.endswith(f"/{name}")
        lease = await driver.claim(delivery, worker)
        coming.extend(lease.deliveries)
        return lease

    await driver.answer(await claim("finished"), "done")
    await driver.retry(await claim("backing_off"), failure=TOOL_ERROR)
    leased = await claim("leased")
    await driver.hand_back(await claim("handed"), begun=False)
    await driver.lose(await claim("lost", "w9"))

    assert (await driver.store.runs.cancel(run_id)).status == "cancelling"
    assert [call for call, _ in await driver.results(run_id)] == ["finished"]
    await check_whole(driver.redis)
    assert (await driver.answer(leased, "also done")).status == "cancelled"
    assert await driver.results(run_id) == [
        ("finished", "done"),
        ("leased", "also done"),
        ("backing_off", BEGUN),
        ("handed", DENIED),
        ("lost", BEGUN),
        ("ready", DENIED),
        ("waiting", DENIED),
    ]


@pytest.mark.parametrize("brings", ["retry", "give up", "cancelled", "handed back", "lost", "deadline"])
async def test_a_tool_stopped_half_way_says_so(driver: StoreDriver, brings: str) -> None:
    run_id, deliveries = await driver.turn("c1", "c2")
    lease = await driver.claim(deliveries[0])
    await driver.store.runs.cancel(run_id)
    expected = BEGUN
    match brings:
        case "retry":
            await driver.retry(lease, failure=TOOL_ERROR)
        case "give up":
            await driver.give_up(lease, INTERNAL)
            expected = "Internal error."
        case "cancelled":
            await driver.store.steps.settle(lease, Finish(None, StopReason.CANCELLED))
        case "handed back":
            await driver.hand_back(lease)
        case "lost":
            await driver.lose(lease)
        case _:
            await driver.redis.hset(f"{{p00}}:run:{run_id}", "deadline", 2)
            await driver.hasten(run_id, "end")

    assert await driver.results(run_id) == [("c1", expected), ("c2", DENIED)]
    assert (await driver.get(run_id)).status is RunStatus.CANCELLED
    kinds = await driver.kinds(run_id)
    if brings in ("lost", "deadline"):
        with pytest.raises(StaleLease):
            await driver.hand_back(lease)
    else:
        # Under this lease something was settled: what comes again is answered, and writes nothing.
        assert (await driver.hand_back(lease)).status == "cancelled"
    assert await driver.kinds(run_id) == kinds


async def test_cancelling_waits_for_every_worker(driver: StoreDriver) -> None:
    run_id, deliveries = await driver.turn("c1", "c2", "c3")
    leases = [await driver.claim(delivery, f"w{i}") for i, delivery in enumerate(deliveries)]
    await driver.store.runs.cancel(run_id)

    assert (await driver.answer(leases[1])).status == "cancelling"
    assert (await driver.lose(leases[0]))[0].status == "cancelling"
    assert (await driver.answer(leases[2])).status == "cancelled"
    assert await driver.results(run_id) == [("c2", "42"), ("c3", "42"), ("c1", BEGUN)]


@pytest.mark.parametrize("lets_go", ["deadline", "lost", "handed back", "deadline without a cancel"])
async def test_text_of_an_answer_that_is_not_kept_is_discarded(driver: StoreDriver, lets_go: str) -> None:
    run_id, lease = await driver.begin()
    await driver.store.steps.write_deltas([Delta(lease, "he")])
    if not lets_go.endswith("cancel"):
        await driver.store.runs.cancel(run_id)
    match lets_go:
        case "lost":
            await driver.lose(lease)
        case "handed back":
            await driver.hand_back(lease)
        case _:
            await driver.redis.hset(f"{{p00}}:run:{run_id}", "deadline", 2)
            await driver.hasten(run_id, "end")
    discarded, finished = (await driver.events(run_id))[-2:]
    assert (discarded.type, discarded.data) == ("message.discarded", {"step": "1", "attempt": 1})
    assert finished.type == "run.finished"


async def test_cancel_on_the_last_step_is_no_max_steps(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(agent=AgentSpec(model="fake/echo", max_steps=1))
    await driver.store.runs.cancel(run_id)
    await driver.store.steps.settle(lease, Continue(Message(role="assistant", content="more")))

    assert (await driver.get(run_id)).stop_reason is StopReason.CANCELLED


async def test_the_conversation_goes_on_after_a_cancel(driver: StoreDriver) -> None:
    run_id, (delivery, _) = await driver.turn("c1", "c2")
    await driver.store.runs.cancel(run_id)

    second, lease = await driver.begin(input="again", conversation_id=delivery.conversation_id)
    roles = [entry.message.role for entry in lease.log.entries]
    assert roles == ["user", "assistant", "tool", "tool", "user"]
    await driver.finish(lease)
    assert (await driver.get(second)).status is RunStatus.COMPLETED
