"""Claiming steps, and what verdicts do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from palaver.errors import StaleLease
from palaver.leases import Delta, Lease, Stray
from palaver.lifecycle import RunStatus, StopReason, WaitReason
from palaver.models import AgentSpec, Message, ToolCall, Usage
from palaver.verdicts import Continue, Finish, HandBack, Postpone, RetryAfter, ToolOutcome, Verdict
from tests.contract.desk import INTERNAL, RATE_LIMITED, TOOL_ERROR, Desk

USED = Usage(input_tokens=7, model_calls=1, cost_usd=0.5)


async def test_a_turn_with_a_tool(desk: Desk) -> None:
    run_id, (delivery,) = await desk.turn("c1")
    assert (delivery.queue, delivery.step, delivery.task_id) == ("tools", "1/c1", f"{run_id}:1:c1:1")

    tool = await desk.claim(delivery)
    assert tool.call == ToolCall(id="c1", name="calculator", arguments='{"x": 1}')
    assert tool.entries == ()
    (delivery,) = (await desk.answer(tool)).deliveries
    lease = await desk.claim(delivery)
    assert [entry.message.role for entry in lease.entries] == ["user", "assistant", "tool"]
    settled = await desk.store.steps.settle(
        lease,
        Finish(
            Message(role="assistant", content="42!"),
            StopReason.END_TURN,
            Usage(input_tokens=7, output_tokens=3, model_calls=2),
        ),
    )

    assert (settled.status, settled.deliveries, settled.next_run) == ("completed", (), None)
    run = await desk.get(run_id)
    assert (run.status, run.stop_reason, run.output, run.step) == (
        RunStatus.COMPLETED, StopReason.END_TURN, "42!", 2,
    )  # fmt: skip
    assert run.usage == Usage(input_tokens=7, output_tokens=3, model_calls=2, tool_calls=1)
    assert await desk.kinds(run_id) == [
        "run.created", "message.created", "run.started", "step.started", "message.created",
        "step.started", "tool.finished", "step.started", "message.created", "run.finished",
    ]  # fmt: skip


async def test_a_worker_is_given_what_it_does_not_know(desk: Desk) -> None:
    _, lease = await desk.begin()
    tool = await desk.claim((await desk.ask(lease, "c1"))[0])
    (delivery,) = (await desk.answer(tool)).deliveries

    again = await desk.claim(delivery, known=lease.position)
    assert [entry.message.role for entry in again.entries] == ["assistant", "tool"]
    assert again.position > lease.position


async def test_only_one_claim_wins(desk: Desk) -> None:
    (delivery,) = (await desk.submit()).deliveries
    await desk.claim(delivery, "w1")

    assert await desk.try_claim(delivery, "w2") == Stray("leased")
    assert await desk.try_claim(delivery, "w1") == Stray("leased")


async def test_a_claim_whose_answer_was_lost_gets_the_same_lease(desk: Desk) -> None:
    (delivery,) = (await desk.submit()).deliveries
    first = await desk.claim(delivery, "w1", nonce="n")
    second = await desk.claim(delivery, "w1", nonce="n")

    assert (first.fence, first.attempt, first.entries) == (second.fence, second.attempt, second.entries)
    assert (await desk.kinds(delivery.run_id)).count("step.started") == 1
    assert isinstance(await desk.try_claim(delivery, "w2", nonce="n"), Stray)


async def test_deliveries_of_what_is_over_are_strays(desk: Desk) -> None:
    submitted = await desk.submit()
    (delivery,) = submitted.deliveries
    lease = await desk.claim(delivery)
    (tool,) = await desk.ask(lease, "c1")
    assert await desk.try_claim(delivery) == Stray("settled")

    await desk.store.runs.cancel(submitted.run_id)
    assert await desk.try_claim(tool) == Stray("cancelled")


async def test_a_stale_fence_writes_nothing(desk: Desk, redis: Any) -> None:
    run_id, stale = await desk.begin()
    (lost,) = await desk.lose(stale)
    before = [await redis.dump(key) for key in sorted(await redis.keys("*"))]

    with pytest.raises(StaleLease):
        await desk.finish(stale)
    with pytest.raises(StaleLease):
        await desk.hand_back(stale)
    await desk.store.steps.feed([Delta(stale, "late")])
    assert [await redis.dump(key) for key in sorted(await redis.keys("*"))] == before

    fresh = await desk.claim(lost.deliveries[0], "w2")
    assert fresh.fence > stale.fence
    with pytest.raises(StaleLease):
        await desk.finish(stale)
    await desk.finish(fresh)
    with pytest.raises(StaleLease):
        await desk.finish(stale)
    assert (await desk.get(run_id)).status is RunStatus.COMPLETED


@pytest.mark.parametrize("last", [False, True], ids=["goes on", "ends"])
async def test_a_settle_whose_answer_was_lost_is_told_again(desk: Desk, last: bool) -> None:
    run_id, lease = await desk.begin()
    if last:
        first, again = await desk.finish(lease), await desk.finish(lease)
    else:
        verdict = Continue(Message(role="assistant", content="hm"))
        first = await desk.store.steps.settle(lease, verdict)
        again = await desk.store.steps.settle(lease, verdict)

    assert (first.status, first.deliveries) == (again.status, again.deliveries)
    assert (await desk.kinds(run_id)).count("message.created") == 2


@pytest.mark.parametrize(
    "verdict",
    [Postpone(60.0, "cooldown", usage=USED), Postpone(0.0, "cooldown", usage=USED), HandBack(True, USED)],
    ids=["postponed", "postponed for no time", "handed back"],
)
async def test_a_lease_that_was_given_up_twice_is_given_up_once(desk: Desk, verdict: Verdict) -> None:
    run_id, lease = await desk.begin()
    first = await desk.store.steps.settle(lease, verdict)
    kinds = await desk.kinds(run_id)
    again = await desk.store.steps.settle(lease, verdict)
    assert again.status == first.status
    assert [(each.step, each.number) for each in again.deliveries] == [
        (each.step, each.number) for each in first.deliveries
    ]
    assert await desk.kinds(run_id) == kinds
    assert (await desk.get(run_id)).usage.input_tokens == USED.input_tokens


async def test_a_step_is_leased_to_a_worker_of_its_kind_only(desk: Desk) -> None:
    _, (tool,) = await desk.turn("c1")
    assert await desk.try_claim(replace(tool, queue="model")) == Stray("not of this queue")
    submitted = await desk.submit()
    assert await desk.try_claim(replace(submitted.deliveries[0], queue="tools")) == Stray("not of this queue")
    assert isinstance(await desk.try_claim(tool), Lease)


async def test_a_retry_waits_and_says_why(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    settled = await desk.retry(lease, delay=60)
    assert (settled.status, settled.deliveries) == ("running", ())

    run = await desk.get(run_id)
    assert run.waiting is not None
    assert (run.waiting.reason, run.waiting.attempt, run.waiting.error_class) == (
        WaitReason.BACKOFF, 2, "rate_limited",
    )  # fmt: skip
    retrying = (await desk.events(run_id))[-1]
    assert retrying.type == "run.retrying"
    assert retrying.data["error"] == RATE_LIMITED.to_error(step="1", attempt=1)
    (nothing,) = await desk.attend(run_id, "1")
    assert nothing.deliveries == ()

    (due,) = await desk.hasten(run_id, "1")
    assert [(each.queue, each.step, each.number) for each in due.deliveries] == [("model", "1", 2)]
    second = await desk.claim(due.deliveries[0])
    assert (second.attempt, second.try_number) == (2, 2)
    run = await desk.get(run_id)
    assert (run.waiting, run.attempt) == (None, 2)


async def test_attempts_count_failures_and_tries_count_losses_too(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    (lost,) = await desk.lose(lease)
    lease = await desk.claim(lost.deliveries[0])
    assert (lease.attempt, lease.try_number) == (1, 2)

    await desk.retry(lease)
    (due,) = await desk.hasten(run_id, "1")
    lease = await desk.claim(due.deliveries[0])
    assert (lease.attempt, lease.try_number) == (2, 3)
    started = [event.data["attempt"] for event in await desk.events(run_id) if event.type == "step.started"]
    assert started == [1, 2, 3]


async def test_a_step_that_gives_up_ends_the_run(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    await desk.give_up(lease)

    run = await desk.get(run_id)
    assert (run.status, run.stop_reason) == (RunStatus.FAILED, StopReason.ERROR)
    assert run.error == INTERNAL.to_error(step="1", attempt=1)
    assert (await desk.events(run_id))[-1].data["error"] == run.error


async def test_a_tool_that_gives_up_is_told_to_the_model(desk: Desk) -> None:
    run_id, (delivery,) = await desk.turn("c1")
    settled = await desk.give_up(await desk.claim(delivery), TOOL_ERROR)

    assert [each.step for each in settled.deliveries] == ["2"]
    assert await desk.results(run_id) == [("c1", "division by zero")]
    assert (await desk.get(run_id)).error is None


async def test_a_tool_that_fails_for_good_ends_the_run_with_whole_turns(desk: Desk) -> None:
    run_id, deliveries = await desk.turn("c1", "c2", "c3")
    await desk.claim(deliveries[2])
    await desk.give_up(await desk.claim(deliveries[0]), INTERNAL)

    assert await desk.results(run_id) == [
        ("c1", "Internal error."),
        ("c2", "Not started: the run ended (error)."),
        ("c3", "Interrupted: the run ended (error). It may or may not have taken effect."),
    ]


async def test_the_next_model_step_waits_for_every_tool(desk: Desk) -> None:
    run_id, deliveries = await desk.turn("c1", "c2", "c3")
    leases = [await desk.claim(delivery) for delivery in deliveries]

    assert (await desk.answer(leases[2])).deliveries == ()
    assert (await desk.answer(leases[0])).deliveries == ()
    assert [each.step for each in (await desk.answer(leases[1])).deliveries] == ["2"]
    assert [call for call, _ in await desk.results(run_id)] == ["c3", "c1", "c2"]


async def test_backoff_is_shown_when_nothing_else_goes_on(desk: Desk) -> None:
    run_id, deliveries = await desk.turn("c1", "c2")
    leases = [await desk.claim(delivery) for delivery in deliveries]
    await desk.retry(leases[0], failure=TOOL_ERROR)
    assert (await desk.get(run_id)).waiting is None

    await desk.answer(leases[1])
    waiting = (await desk.get(run_id)).waiting
    assert waiting is not None
    assert (waiting.reason, waiting.error_class) == (WaitReason.BACKOFF, "tool_error")


async def test_calls_answered_in_the_model_step(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    call = ToolCall(id="c1", name="calculator")
    outcome = ToolOutcome(Message(role="tool", call_id="c1", name="calculator", content="4"))
    settled = await desk.store.steps.settle(lease, Continue(Message(role="assistant", tool_calls=(call,)), (outcome,)))

    assert [each.step for each in settled.deliveries] == ["2"]
    assert await desk.results(run_id) == [("c1", "4")]


@pytest.mark.parametrize("ids", [("c1",), ("c1", "c1")], ids=["forgotten", "twice"])
async def test_a_verdict_that_would_break_the_pairing_is_refused(desk: Desk, ids: tuple[str, ...]) -> None:
    run_id, lease = await desk.begin()
    calls = tuple(ToolCall(id=call_id, name="calculator") for call_id in ids)

    with pytest.raises(ValueError, match="call"):
        await desk.store.steps.settle(lease, Continue(Message(role="assistant", tool_calls=calls)))
    assert "message.created" not in (await desk.kinds(run_id))[2:]


async def test_an_answer_cut_off_in_its_calls_is_sealed(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    calls = (ToolCall(id="c1", name="calculator"), ToolCall(id="weird id/", name="calculator"))
    message = Message(role="assistant", tool_calls=calls, partial=True)
    await desk.store.steps.settle(lease, Finish(message, StopReason.MAX_TOKENS))

    assert (await desk.get(run_id)).status is RunStatus.INCOMPLETE
    assert await desk.results(run_id) == [
        ("c1", "Not started: the run ended (max_tokens)."),
        ("weird id/", "Not started: the run ended (max_tokens)."),
    ]


async def test_max_steps_ends_the_run_before_the_next_call(desk: Desk) -> None:
    agent = AgentSpec(model="fake/echo", max_steps=1)
    run_id, lease = await desk.begin(agent=agent)
    (tool,) = await desk.ask(lease, "c1")
    settled = await desk.answer(await desk.claim(tool))

    assert (settled.status, settled.deliveries) == ("incomplete", ())
    run = await desk.get(run_id)
    assert (run.stop_reason, run.step) == (StopReason.MAX_STEPS, 1)
    assert await desk.results(run_id) == [("c1", "42")]


async def test_text_that_is_withdrawn_is_discarded(desk: Desk) -> None:
    run_id, lease = await desk.begin()
    await desk.store.steps.feed([Delta(lease, "he")])
    await desk.store.steps.settle(lease, RetryAfter(1, RATE_LIMITED), streamed=True)

    assert (await desk.kinds(run_id))[-3:] == ["message.delta", "message.discarded", "run.retrying"]


async def test_deltas_are_shown_once_even_if_their_answer_was_lost(desk: Desk, redis: Any) -> None:
    runs = [await desk.begin() for _ in range(3)]
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
    await desk.store.steps.feed(deltas)
    redis.pipeline = execute
    await desk.store.steps.feed(deltas[:1])

    for run_id, _ in runs:
        texts = [event.data["text"] for event in await desk.events(run_id) if event.type == "message.delta"]
        assert texts == ["0", "1", "2"] + (["0"] if run_id == runs[0][0] else [])


async def test_strange_content_survives(desk: Desk) -> None:
    text = 'zwölf "quoted" \\ \x00 \u2028 \U0001f916 </script> %s'
    run_id, lease = await desk.begin(input=text)
    assert [entry.message.content for entry in lease.entries] == [text]

    await desk.finish(lease, text=text)
    assert (await desk.get(run_id)).output == text
