"""Claiming steps, and what verdicts do."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import StaleLease
from palaver.schemas.endpoints import Endpoint
from palaver.schemas.models import AgentSpec, Message, ToolCall, Usage
from palaver.steps.leases import Delta, Lease, Shown, Stray
from palaver.steps.verdicts import Continue, Finish, HandBack, Postpone, RetryAfter, ToolOutcome, Verdict
from palaver.vocabulary.lifecycle import RunStatus, StopReason, WaitReason
from tests.contract.store_driver import INTERNAL, RATE_LIMITED, TOOL_ERROR, StoreDriver

USED = Usage(input_tokens=7, model_calls=1, cost_usd=0.5)


async def test_a_turn_with_a_tool(driver: StoreDriver) -> None:
    run_id, (delivery,) = await driver.turn("c1")
    assert (delivery.queue, delivery.step, delivery.task_id) == ("tools", "1/c1", f"{run_id}:1:c1:1")

    tool = await driver.claim(delivery)
    assert tool.call == ToolCall(id="c1", name="calculator", arguments='{"x": 1}')
    assert tool.log.entries == ()
    (delivery,) = (await driver.answer(tool)).deliveries
    lease = await driver.claim(delivery)
    assert [entry.message.role for entry in lease.log.entries] == ["user", "assistant", "tool"]
    settled = await driver.store.steps.settle(
        lease,
        Finish(
            Message(role="assistant", content="42!"),
            StopReason.END_TURN,
            Usage(input_tokens=7, output_tokens=3, model_calls=2),
        ),
    )

    assert (settled.status, settled.deliveries, settled.next_run) == ("completed", (), None)
    run = await driver.get(run_id)
    assert (run.status, run.stop_reason, run.output, run.step) == (
        RunStatus.COMPLETED, StopReason.END_TURN, "42!", 2,
    )  # fmt: skip
    assert run.usage == Usage(input_tokens=7, output_tokens=3, model_calls=2, tool_calls=1)
    assert await driver.kinds(run_id) == [
        "run.created", "message.created", "run.started", "step.started", "message.created",
        "step.started", "tool.finished", "step.started", "message.created", "run.finished",
    ]  # fmt: skip


async def test_a_worker_is_given_what_it_does_not_know(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    tool = await driver.claim((await driver.ask(lease, "c1"))[0])
    (delivery,) = (await driver.answer(tool)).deliveries

    again = await driver.claim(delivery, known=lease.log.position)
    assert [entry.message.role for entry in again.log.entries] == ["assistant", "tool"]
    assert again.log.position > lease.log.position


async def test_only_one_claim_wins(driver: StoreDriver) -> None:
    (delivery,) = (await driver.submit()).deliveries
    await driver.claim(delivery, "w1")

    assert await driver.try_claim(delivery, "w2") == Stray("leased")
    assert await driver.try_claim(delivery, "w1") == Stray("leased")


async def test_a_claim_whose_answer_was_lost_gets_the_same_lease(driver: StoreDriver) -> None:
    (delivery,) = (await driver.submit()).deliveries
    first = await driver.claim(delivery, "w1", nonce="n")
    second = await driver.claim(delivery, "w1", nonce="n")

    assert (first.fence, first.attempt, first.log.entries) == (second.fence, second.attempt, second.log.entries)
    assert (await driver.kinds(delivery.run_id)).count("step.started") == 1
    assert isinstance(await driver.try_claim(delivery, "w2", nonce="n"), Stray)


async def test_a_model_at_an_endpoint_of_the_agent_is_that_of_its_host(driver: StoreDriver) -> None:
    agent = AgentSpec(model="inline/m", endpoint=Endpoint(base_url="https://models.example.com/v1"))
    _, lease = await driver.begin(agent=agent)
    assert (lease.agent.provider, lease.agent.model_name) == ("inline:models.example.com", "m")


async def test_deliveries_of_what_is_over_are_strays(driver: StoreDriver) -> None:
    submitted = await driver.submit()
    (delivery,) = submitted.deliveries
    lease = await driver.claim(delivery)
    (tool,) = await driver.ask(lease, "c1")
    assert await driver.try_claim(delivery) == Stray("settled")

    await driver.store.runs.cancel(submitted.run_id)
    assert await driver.try_claim(tool) == Stray("cancelled")


async def test_a_stale_fence_writes_nothing(driver: StoreDriver, redis: Any) -> None:
    run_id, stale = await driver.begin()
    (lost,) = await driver.lose(stale)
    before = [await redis.dump(key) for key in sorted(await redis.keys("*"))]

    with pytest.raises(StaleLease):
        await driver.finish(stale)
    with pytest.raises(StaleLease):
        await driver.hand_back(stale)
    await driver.store.steps.write_deltas([Delta(stale, "late")])
    assert [await redis.dump(key) for key in sorted(await redis.keys("*"))] == before

    fresh = await driver.claim(lost.deliveries[0], "w2")
    assert fresh.fence > stale.fence
    with pytest.raises(StaleLease):
        await driver.finish(stale)
    await driver.finish(fresh)
    with pytest.raises(StaleLease):
        await driver.finish(stale)
    assert (await driver.get(run_id)).status is RunStatus.COMPLETED


@pytest.mark.parametrize("last", [False, True], ids=["goes on", "ends"])
async def test_a_settle_whose_answer_was_lost_is_told_again(driver: StoreDriver, last: bool) -> None:
    run_id, lease = await driver.begin()
    if last:
        first, again = await driver.finish(lease), await driver.finish(lease)
    else:
        verdict = Continue(Message(role="assistant", content="hm"))
        first = await driver.store.steps.settle(lease, verdict)
        again = await driver.store.steps.settle(lease, verdict)

    assert (first.status, first.deliveries) == (again.status, again.deliveries)
    assert (await driver.kinds(run_id)).count("message.created") == 2


@pytest.mark.parametrize(
    "verdict",
    [Postpone(60.0, "cooldown", usage=USED), Postpone(0.0, "cooldown", usage=USED), HandBack(True, USED)],
    ids=["postponed", "postponed for no time", "handed back"],
)
async def test_a_lease_that_was_given_up_twice_is_given_up_once(driver: StoreDriver, verdict: Verdict) -> None:
    run_id, lease = await driver.begin()
    first = await driver.store.steps.settle(lease, verdict)
    kinds = await driver.kinds(run_id)
    again = await driver.store.steps.settle(lease, verdict)
    assert again.status == first.status
    assert [(each.step, each.number) for each in again.deliveries] == [
        (each.step, each.number) for each in first.deliveries
    ]
    assert await driver.kinds(run_id) == kinds
    assert (await driver.get(run_id)).usage.input_tokens == USED.input_tokens


async def test_a_step_is_leased_to_a_worker_of_its_kind_only(driver: StoreDriver) -> None:
    _, (tool,) = await driver.turn("c1")
    assert await driver.try_claim(tool._replace(queue="model")) == Stray("not of this queue")
    submitted = await driver.submit()
    assert await driver.try_claim(submitted.deliveries[0]._replace(queue="tools")) == Stray("not of this queue")
    assert isinstance(await driver.try_claim(tool), Lease)


async def test_a_retry_waits_and_says_why(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    settled = await driver.retry(lease, delay=60)
    assert (settled.status, settled.deliveries) == ("running", ())

    run = await driver.get(run_id)
    assert run.waiting is not None
    assert (run.waiting.reason, run.waiting.attempt, run.waiting.error_class) == (
        WaitReason.BACKOFF, 2, "rate_limited",
    )  # fmt: skip
    retrying = (await driver.events(run_id))[-1]
    assert retrying.type == "run.retrying"
    assert retrying.data["error"] == RATE_LIMITED.to_error(step="1", attempt=1)
    (nothing,) = await driver.sweep(run_id, "1")
    assert nothing.deliveries == ()

    (due,) = await driver.hasten(run_id, "1")
    assert [(each.queue, each.step, each.number) for each in due.deliveries] == [("model", "1", 2)]
    second = await driver.claim(due.deliveries[0])
    assert (second.attempt, second.try_number) == (2, 2)
    run = await driver.get(run_id)
    assert (run.waiting, run.attempt) == (None, 2)


async def test_attempts_count_failures_and_tries_count_losses_too(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    (lost,) = await driver.lose(lease)
    lease = await driver.claim(lost.deliveries[0])
    assert (lease.attempt, lease.try_number) == (1, 2)

    await driver.retry(lease)
    (due,) = await driver.hasten(run_id, "1")
    lease = await driver.claim(due.deliveries[0])
    assert (lease.attempt, lease.try_number) == (2, 3)
    started = [event.data["attempt"] for event in await driver.events(run_id) if event.type == "step.started"]
    assert started == [1, 2, 3]


async def test_a_step_that_gives_up_ends_the_run(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.give_up(lease)

    run = await driver.get(run_id)
    assert (run.status, run.stop_reason) == (RunStatus.FAILED, StopReason.ERROR)
    assert run.error == INTERNAL.to_error(step="1", attempt=1)
    assert (await driver.events(run_id))[-1].data["error"] == run.error


async def test_a_tool_that_gives_up_is_told_to_the_model(driver: StoreDriver) -> None:
    run_id, (delivery,) = await driver.turn("c1")
    settled = await driver.give_up(await driver.claim(delivery), TOOL_ERROR)

    assert [each.step for each in settled.deliveries] == ["2"]
    assert await driver.results(run_id) == [("c1", "division by zero")]
    assert (await driver.get(run_id)).error is None


async def test_a_tool_that_fails_for_good_ends_the_run_with_whole_turns(driver: StoreDriver) -> None:
    run_id, deliveries = await driver.turn("c1", "c2", "c3")
    await driver.claim(deliveries[2])
    await driver.give_up(await driver.claim(deliveries[0]), INTERNAL)

    assert await driver.results(run_id) == [
        ("c1", "Internal error."),
        ("c2", "Not started: the run ended (error)."),
        ("c3", "Interrupted: the run ended (error). It may or may not have taken effect."),
    ]


async def test_the_next_model_step_waits_for_every_tool(driver: StoreDriver) -> None:
    run_id, deliveries = await driver.turn("c1", "c2", "c3")
    leases = [await driver.claim(delivery) for delivery in deliveries]

    assert (await driver.answer(leases[2])).deliveries == ()
    assert (await driver.answer(leases[0])).deliveries == ()
    assert [each.step for each in (await driver.answer(leases[1])).deliveries] == ["2"]
    assert [call for call, _ in await driver.results(run_id)] == ["c3", "c1", "c2"]


async def test_backoff_is_shown_when_nothing_else_goes_on(driver: StoreDriver) -> None:
    run_id, deliveries = await driver.turn("c1", "c2")
    leases = [await driver.claim(delivery) for delivery in deliveries]
    await driver.retry(leases[0], failure=TOOL_ERROR)
    assert (await driver.get(run_id)).waiting is None

    await driver.answer(leases[1])
    waiting = (await driver.get(run_id)).waiting
    assert waiting is not None
    assert (waiting.reason, waiting.error_class) == (WaitReason.BACKOFF, "tool_error")


async def test_calls_answered_in_the_model_step(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    call = ToolCall(id="c1", name="calculator")
    outcome = ToolOutcome(Message(role="tool", call_id="c1", name="calculator", content="4"))
    settled = await driver.store.steps.settle(
        lease, Continue(Message(role="assistant", tool_calls=(call,)), (outcome,))
    )

    assert [each.step for each in settled.deliveries] == ["2"]
    assert await driver.results(run_id) == [("c1", "4")]


@pytest.mark.parametrize("ids", [("c1",), ("c1", "c1")], ids=["forgotten", "twice"])
async def test_a_verdict_that_would_break_the_pairing_is_refused(driver: StoreDriver, ids: tuple[str, ...]) -> None:
    run_id, lease = await driver.begin()
    calls = tuple(ToolCall(id=call_id, name="calculator") for call_id in ids)

    with pytest.raises(ValueError, match="call"):
        await driver.store.steps.settle(lease, Continue(Message(role="assistant", tool_calls=calls)))
    assert "message.created" not in (await driver.kinds(run_id))[2:]


async def test_an_answer_cut_off_in_its_calls_is_sealed(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    calls = (ToolCall(id="c1", name="calculator"), ToolCall(id="weird id/", name="calculator"))
    message = Message(role="assistant", tool_calls=calls, partial=True)
    await driver.store.steps.settle(lease, Finish(message, StopReason.MAX_TOKENS))

    assert (await driver.get(run_id)).status is RunStatus.INCOMPLETE
    assert await driver.results(run_id) == [
        ("c1", "Not started: the run ended (max_tokens)."),
        ("weird id/", "Not started: the run ended (max_tokens)."),
    ]


async def test_max_steps_ends_the_run_before_the_next_call(driver: StoreDriver) -> None:
    agent = AgentSpec(model="fake/echo", max_steps=1)
    run_id, lease = await driver.begin(agent=agent)
    (tool,) = await driver.ask(lease, "c1")
    settled = await driver.answer(await driver.claim(tool))

    assert (settled.status, settled.deliveries) == ("incomplete", ())
    run = await driver.get(run_id)
    assert (run.stop_reason, run.step) == (StopReason.MAX_STEPS, 1)
    assert await driver.results(run_id) == [("c1", "42")]


async def test_text_that_is_withdrawn_is_discarded(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.store.steps.write_deltas([Delta(lease, "he")])
    await driver.store.steps.settle(lease, RetryAfter(1, RATE_LIMITED), shown=Shown.HALF)

    assert (await driver.kinds(run_id))[-3:] == ["message.delta", "message.discarded", "run.retrying"]


async def test_deltas_are_shown_once_even_if_their_answer_was_lost(driver: StoreDriver, redis: Any) -> None:
    runs = [await driver.begin() for _ in range(3)]
    deltas = [Delta(lease, str(i)) for i in range(3) for _, lease in runs]
    execute = redis.pipeline

    def twice(transaction: bool = True) -> Any:
        pipeline = execute(transaction)
        for_real = pipeline.execute

        async def execute_twice(raise_on_error: bool = True) -> Any:
            stack = list(pipeline.command_stack)
            await for_real(raise_on_error)
            pipeline.command_stack = stack
            return await for_real(raise_on_error)

        pipeline.execute = execute_twice
        return pipeline

    redis.pipeline = twice
    await driver.store.steps.write_deltas(deltas)
    redis.pipeline = execute
    await driver.store.steps.write_deltas(deltas[:1])

    for run_id, _ in runs:
        texts = [event.data["text"] for event in await driver.events(run_id) if event.type == "message.delta"]
        assert texts == ["0", "1", "2"] + (["0"] if run_id == runs[0][0] else [])


async def test_strange_content_survives(driver: StoreDriver) -> None:
    text = 'zwölf "quoted" \\ \x00 \u2028 \U0001f916 </script> %s'
    run_id, lease = await driver.begin(input=text)
    assert [entry.message.content for entry in lease.log.entries] == [text]

    await driver.finish(lease, text=text)
    assert (await driver.get(run_id)).output == text
