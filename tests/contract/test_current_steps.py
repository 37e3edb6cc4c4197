"""What a run says of what it is doing now."""

from __future__ import annotations

from datetime import timedelta

import pytest

from palaver.errors import ErrorClass, Failure
from palaver.schemas.conversation import NewConversation
from palaver.schemas.current_steps import MOST_SHOWN, CurrentStep
from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.steps.leases import AnswerProgress, Delivery
from palaver.steps.verdicts import Continue, OpenCall, RetryAfter
from palaver.store import Store
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import StepState
from tests.contract.store_driver import PAUSE, StoreDriver

TIMEOUT = Failure.of(ErrorClass.TIMEOUT, "The model did not begin to answer within 60 s.", code="first_token_timeout")


async def _step(driver: StoreDriver, run_id: str) -> CurrentStep:
    run = await driver.get(run_id)
    (step,) = run.current_steps
    assert run.current_step_count == 1
    return step


async def test_a_step_that_waits_for_a_worker_says_so(driver: StoreDriver) -> None:
    before = await driver.store.runs.now()
    run_id = (await driver.submit()).run_id
    step = await _step(driver, run_id)
    assert (step.step, step.kind, step.name, step.state) == ("1", "model", "fake/echo", StepState.READY)
    assert step.since is not None
    assert before <= step.since <= await driver.store.runs.now()
    assert (step.attempt, step.max_attempts, step.worker) == (1, None, None)
    assert (step.progress, step.last_failure, step.gives_up_at, step.again_at) == (None, None, None, None)


async def test_a_leased_step_names_its_worker(driver: StoreDriver) -> None:
    run_id, _ = await driver.begin()
    step = await _step(driver, run_id)
    assert (step.state, step.worker) == (StepState.LEASED, "w1")


async def test_what_has_come_of_an_answer_is_told_with_the_renewal(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.store.steps.renew([lease], {0: AnswerProgress(received=2048, characters=300, quiet=2.0, left=58.0)})
    step, now = await _step(driver, run_id), await driver.store.runs.now()
    assert step.progress is not None
    assert step.gives_up_at is not None
    assert (step.progress.bytes, step.progress.characters) == (2048, 300)
    assert step.progress.at <= now - timedelta(seconds=2)
    assert step.gives_up_at - step.progress.at == timedelta(seconds=60)
    # A renewal without news leaves what was told.
    await driver.store.steps.renew([lease])
    assert await _step(driver, run_id) == step


async def test_what_an_attempt_before_told_is_not_the_next_ones(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.store.steps.renew([lease], {0: AnswerProgress(2048, 300, 0.0, 60.0)})
    (settled,) = await driver.lose(lease)
    await driver.claim(settled.deliveries[0], "w2")
    step = await _step(driver, run_id)
    assert (step.worker, step.attempt, step.progress, step.gives_up_at) == ("w2", 2, None, None)
    assert step.last_failure is not None
    assert (step.last_failure.error_class, step.last_failure.code) == ("worker_lost", "worker_lost")
    assert "Worker w1 did not renew its lease" in step.last_failure.message


async def test_a_stale_lease_tells_nothing(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    (settled,) = await driver.lose(lease)
    await driver.claim(settled.deliveries[0], "w2")
    await driver.store.steps.renew([lease], {0: AnswerProgress(2048, 300, 0.0, 60.0)})
    assert (await _step(driver, run_id)).progress is None


async def test_a_step_that_is_tried_again_says_what_failed_and_how_often_it_may(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.store.steps.settle(lease, RetryAfter(60.0, TIMEOUT, 5))
    step, run = await _step(driver, run_id), await driver.get(run_id)
    assert step.state is StepState.LATER
    assert run.waiting is not None
    assert step.again_at == run.waiting.until
    assert run.waiting.error_class == "timeout"
    assert (step.attempt, step.max_attempts) == (2, 5)
    assert step.last_failure is not None
    assert (step.last_failure.error_class, step.last_failure.code) == ("timeout", "first_token_timeout")
    assert step.last_failure.message == TIMEOUT.message
    assert step.last_failure.at == step.since
    # It is still known while the next attempt goes on.
    (settled,) = await driver.hasten(run_id, "1")
    await driver.claim(settled.deliveries[0])
    again = await _step(driver, run_id)
    assert (again.state, again.last_failure, again.attempt) == (StepState.LEASED, step.last_failure, 2)


async def test_lost_attempts_do_not_use_up_those_of_the_policy(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    (settled,) = await driver.lose(lease)
    lease = await driver.claim(settled.deliveries[0])
    await driver.store.steps.settle(lease, RetryAfter(60.0, TIMEOUT, 5))
    step = await _step(driver, run_id)
    assert (step.attempt, step.max_attempts) == (3, 6)


async def test_a_fallback_is_named_and_begins_to_count_anew(driver: StoreDriver) -> None:
    agent = AgentSpec(model="fake/a", fallbacks=("fake/b",), name="support")
    run_id, lease = await driver.begin(agent=agent)
    settled = await driver.store.steps.settle(lease, RetryAfter(0.0, TIMEOUT, fallback=True))
    assert [delivery.title for delivery in settled.deliveries] == ["fake/b for support"]
    step = await _step(driver, run_id)
    assert (step.name, step.max_attempts) == ("fake/b", None)


async def test_a_tool_call_names_its_tool_and_when_it_is_given_up(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    opened = OpenCall(ToolCall(id="c1", name="find_order"), idempotent=False, limit=30.0)
    settled = await driver.store.steps.settle(
        lease, Continue(Message(role="assistant", tool_calls=(opened.call,)), calls=(opened,))
    )
    await driver.claim(settled.deliveries[0])
    step = await _step(driver, run_id)
    assert (step.step, step.kind, step.name, step.state) == ("1/c1", "tool", "find_order", StepState.LEASED)
    assert step.since is not None
    assert step.gives_up_at == step.since + timedelta(seconds=30)


async def test_a_call_that_waits_for_somebody_says_until_when(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("p1", approval=["p1"])
    step = await _step(driver, run_id)
    assert step.state is StepState.AWAITING
    assert step.gives_up_at == (await driver.action(run_id, "p1")).expires_at


async def test_a_paused_step_says_so(driver: StoreDriver) -> None:
    run_id = (await driver.submit()).run_id
    await driver.act(run_id, PAUSE)
    assert (await _step(driver, run_id)).state is StepState.PARKED


async def test_of_many_calls_those_that_a_worker_has_come_first_and_the_rest_is_counted(driver: StoreDriver) -> None:
    ids = [f"c{number}" for number in range(128)]
    run_id, deliveries = await driver.turn(*ids)
    await driver.claim(deliveries[0], "w3")
    await driver.claim(deliveries[2], "w6")
    run = await driver.get(run_id)
    assert (len(run.current_steps), run.current_step_count) == (MOST_SHOWN, 128)
    assert {step.worker for step in run.current_steps[:2]} == {"w3", "w6"}
    assert {step.state for step in run.current_steps[2:]} == {StepState.READY}


async def test_a_run_that_has_ended_does_nothing(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.finish(lease)
    run = await driver.get(run_id)
    assert (run.current_steps, run.current_step_count) == ((), 0)


async def test_a_cancelled_call_that_is_only_kept_for_its_result_is_not_shown(driver: StoreDriver) -> None:
    run_id, deliveries = await driver.turn("c1", "c2")
    lease = await driver.claim(deliveries[0])
    await driver.claim(deliveries[1], "w2")
    await driver.store.runs.cancel(run_id)
    await driver.store.steps.settle(lease, Continue())
    run = await driver.get(run_id)
    assert [step.step for step in run.current_steps] == ["1/c2"]


async def test_a_list_shows_it_too(driver: StoreDriver) -> None:
    run_id, _ = await driver.begin()
    (run,) = (await driver.store.runs.list({}, limit=10)).runs
    assert run.current_steps == (await driver.get(run_id)).current_steps != ()


@pytest.mark.parametrize(
    ("name", "title"), [("support", "fake/echo for support"), (None, "fake/echo")], ids=["named", "nameless"]
)
async def test_a_delivery_says_what_it_is_for(driver: StoreDriver, name: str | None, title: str) -> None:
    submitted = await driver.submit(agent=AgentSpec(model="fake/echo", name=name))
    (delivery,) = submitted.deliveries
    assert delivery.title == title
    lease = await driver.claim(delivery)
    (tool,) = await driver.ask(lease, "c1")
    assert tool.title == title.replace("fake/echo", "calculator")
    later = await driver.submit(agent=None, conversation_id=delivery.conversation_id)
    await driver.answer(await driver.claim(tool))
    settled = await driver.finish(
        await driver.claim(Delivery("model", delivery.run_id, delivery.conversation_id, "2", 1))
    )
    assert settled.next_run == later.run_id
    (started,) = await driver.sweep(later.run_id, "start")
    assert [each.title for each in started.deliveries] == [title]


async def test_a_delivery_says_it_in_a_conversation_that_was_begun_with_an_agent(driver: StoreDriver) -> None:
    agent = AgentSpec(model="fake/echo", name="support")
    conversation, _ = await driver.store.conversations.begin(NewConversation(agent=agent))
    submitted = await driver.submit(agent=None, conversation_id=conversation.id)
    assert [each.title for each in submitted.deliveries] == ["fake/echo for support"]
    await driver.store.runs.cancel(submitted.run_id)


async def test_a_step_of_an_older_version_is_shown_as_far_as_it_goes(driver: StoreDriver, store: Store) -> None:
    run_id, deliveries = await driver.turn("c1")
    await driver.redis.hset(
        keys.steps(run_id),
        deliveries[0].step,
        '{"state":"ready","queue":"tools","attempt":1,"losses":0,"deliveries":1,'
        '"call":"{\\"id\\":\\"c1\\",\\"name\\":\\"calculator\\",\\"arguments\\":\\"{}\\"}"}',
    )
    step = await _step(driver, run_id)
    assert (step.name, step.since, step.gives_up_at) == ("calculator", None, None)
