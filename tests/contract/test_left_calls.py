"""Calls that go on later: once a person has answered a question, or once a server has got further with a task. Nothing
holds a place meanwhile, and what was kept of the call is there for any worker."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from palaver.errors import ErrorClass, Failure, StateConflict
from palaver.schemas.actions import Item, PendingAction, QuestionAnswer, ServerQuestion
from palaver.steps.leases import Delivery, Lease, Settled, Stray
from palaver.steps.verdicts import AskPerson, GiveUp, Postpone
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import StopReason, WaitReason
from tests.contract.store_driver import PAUSE, RESUME, TOOL_ERROR, StoreDriver, approve, deny, output, say

_QUESTION = ServerQuestion(
    asker="crm", message="Which one?", form={"type": "object", "properties": {"a": {"type": "string"}}}
)
_UNKNOWN = "It may or may not have taken effect."


def reply(action_id: str, response: str = "accept", content: dict[str, Any] | None = None) -> QuestionAnswer:
    """The answer to a question."""
    return QuestionAnswer.model_validate(
        {"type": "answer", "action_id": action_id, "response": response, "content": content}
    )


async def _call(driver: StoreDriver, **how: Any) -> tuple[str, Lease]:
    run_id, (delivery,) = await driver.turn("c1", **how)
    return run_id, await driver.claim(delivery)


async def _asked(driver: StoreDriver, **how: Any) -> tuple[str, Lease, PendingAction]:
    run_id, lease = await _call(driver, **how)
    await _ask(driver, lease)
    return run_id, lease, await driver.action(run_id, "c1")


async def _ask(driver: StoreDriver, lease: Lease, kept: str = "{}") -> Settled:
    return await driver.store.steps.settle(lease, AskPerson(_QUESTION, 90.0, kept))


async def test_a_question_is_a_pending_action_and_holds_nothing(driver: StoreDriver) -> None:
    run_id, lease, action = await _asked(driver)
    run = await driver.get(run_id)
    assert run.status == "requires_action"
    assert run.waiting is not None
    assert (run.waiting.reason, run.waiting.until) == (WaitReason.QUESTION, action.expires_at)
    assert (action.type, action.tool, action.question) == ("question", "calculator", _QUESTION)
    assert action.arguments == '{"x": 1}'
    # The lease is used up: nobody can settle with it, and a repeat writes nothing.
    before = await driver.events(run_id)
    assert (await driver.answer(lease)).status == "requires_action"
    assert (await _ask(driver, lease)).deliveries == ()
    assert await driver.events(run_id) == before
    assert [event.type for event in before[-2:]] == ["action.required", "run.requires_action"]


@pytest.mark.parametrize(
    ("response", "content"), [("accept", {"a": "é"}), ("accept", None), ("decline", None), ("cancel", None)]
)
async def test_an_answer_lets_the_call_go_on(
    driver: StoreDriver, response: str, content: dict[str, Any] | None
) -> None:
    run_id, lease = await _call(driver)
    await _ask(driver, lease, kept='{"state": "s"}')
    action = await driver.action(run_id, "c1")
    acted = await driver.act(run_id, reply(action.id, response, content), by="alice")
    (delivery,) = acted.settled.deliveries
    assert (acted.settled.status, delivery.step) == ("running", "1/c1")
    again = await driver.claim(delivery, "w2")
    said = {"action": response, **({} if content is None else {"content": content})}
    assert (again.kept, orjson.loads(again.answer or "")) == ('{"state": "s"}', said)
    assert (again.attempt, again.fence > lease.fence) == (1, True)
    resolved = [event.data for event in await driver.events(run_id) if event.type == "action.resolved"]
    assert [(data["decision"], data["response"], data["by"]) for data in resolved] == [("answer", response, "alice")]
    # What a person wrote is for the server alone.
    assert "é" not in str(await driver.events(run_id))
    await driver.answer(again)
    assert await driver.results(run_id) == [("c1", "42")]


async def test_it_may_ask_again_and_each_question_is_another_one(driver: StoreDriver) -> None:
    run_id, _, first = await _asked(driver)
    acted = await driver.act(run_id, reply(first.id))
    lease = await driver.claim(acted.settled.deliveries[0])
    await _ask(driver, lease)
    second = await driver.action(run_id, "c1")
    assert second.id != first.id
    with pytest.raises(StateConflict) as refused:
        await driver.act(run_id, reply(first.id))
    assert refused.value.code == "action_already_resolved"
    acted = await driver.act(run_id, reply(second.id, "decline"))
    assert (await driver.claim(acted.settled.deliveries[0])).answer == '{"action": "decline"}'


async def test_what_nobody_answers_is_declined_and_the_call_goes_on(driver: StoreDriver) -> None:
    run_id, _, action = await _asked(driver)
    (expired,) = await driver.hasten(run_id, "1/c1")
    lease = await driver.claim(expired.deliveries[0])
    assert lease.answer == '{"action":"decline"}'
    with pytest.raises(StateConflict) as refused:
        await driver.act(run_id, reply(action.id))
    assert refused.value.code == "action_expired"
    await driver.answer(lease)
    assert (await driver.get(run_id)).status == "running"


async def test_other_answers_are_refused_and_all_is_about_approvals_alone(driver: StoreDriver) -> None:
    run_id, _, action = await _asked(driver)
    refusals: list[tuple[Item, str]] = [
        (approve(action.id), "wrong_action"),
        (deny(action.id), "wrong_action"),
        (output(action.id), "wrong_action"),
        (output("c1"), "wrong_action"),
        (approve(), "no_pending_action"),
        (reply("act_other"), "unknown_action"),
        (reply(action.id).model_copy(update={"digest": "0" * 64}), "digest_mismatch"),
    ]
    for item, code in refusals:
        with pytest.raises(StateConflict) as refused:
            await driver.act(run_id, item)
        assert refused.value.code == code, item
    assert (await driver.get(run_id)).pending_actions == (action,)
    await driver.act(run_id, reply(action.id).model_copy(update={"digest": action.digest}))


async def test_a_question_is_not_answered_by_an_approval_of_another_call(driver: StoreDriver) -> None:
    run_id, deliveries = await driver.turn("c1", "c2", approval=["c2"])
    await _ask(driver, await driver.claim(deliveries[0]))
    question, approval = await driver.action(run_id, "c1"), await driver.action(run_id, "c2")
    for item in (reply(approval.id), approve(question.id)):
        with pytest.raises(StateConflict) as refused:
            await driver.act(run_id, item)
        assert refused.value.code == "wrong_action"
    await driver.act(run_id, approve())
    assert [action.id for action in (await driver.get(run_id)).pending_actions] == [question.id]


async def test_a_cancel_says_that_the_call_had_begun(driver: StoreDriver) -> None:
    run_id, _, _ = await _asked(driver)
    assert (await driver.store.runs.cancel(run_id)).status == "cancelled"
    (result,) = await driver.results(run_id)
    assert result == ("c1", f"Cancelled after it had begun. {_UNKNOWN}")
    assert (await driver.get(run_id)).pending_actions == ()


async def test_a_question_that_comes_after_a_cancel_is_asked_of_nobody(driver: StoreDriver) -> None:
    run_id, lease = await _call(driver)
    await driver.store.runs.cancel(run_id)
    assert (await _ask(driver, lease)).status == "cancelled"
    assert "action.required" not in [event.type for event in await driver.events(run_id)]


async def test_an_answer_while_the_run_is_paused_waits_for_it(driver: StoreDriver) -> None:
    run_id, _, action = await _asked(driver)
    await driver.act(run_id, PAUSE)
    acted = await driver.act(run_id, reply(action.id, content={"a": "x"}))
    assert (acted.settled.status, acted.settled.deliveries) == ("paused", ())
    resumed = await driver.act(run_id, RESUME)
    lease = await driver.claim(resumed.settled.deliveries[0])
    assert orjson.loads(lease.answer or "") == {"action": "accept", "content": {"a": "x"}}


async def test_the_wait_for_an_answer_is_not_the_steps_time(driver: StoreDriver) -> None:
    run_id, _, action = await _asked(driver)
    name = keys.steps(run_id)
    step = orjson.loads(await driver.redis.hget(name, "1/c1"))
    # It was asked an hour ago.
    step |= {"since": step["since"] - 3_600_000, "first": step["first"] - 3_600_000}
    await driver.redis.hset(name, "1/c1", orjson.dumps(step))
    acted = await driver.act(run_id, reply(action.id))
    assert (await driver.claim(acted.settled.deliveries[0])).elapsed < 60


async def test_a_worker_that_is_lost_with_the_answer_may_have_given_it(driver: StoreDriver) -> None:
    run_id, _, action = await _asked(driver)
    acted = await driver.act(run_id, reply(action.id))
    lease = await driver.claim(acted.settled.deliveries[0])
    await driver.lose(lease)
    assert await driver.results(run_id) == [("c1", f"Interrupted: the worker that ran this call was lost. {_UNKNOWN}")]


async def test_an_answer_that_was_not_sent_is_there_for_the_next_attempt(driver: StoreDriver) -> None:
    run_id, _, action = await _asked(driver)
    acted = await driver.act(run_id, reply(action.id))
    lease = await driver.claim(acted.settled.deliveries[0])
    await driver.retry(lease, 60.0, TOOL_ERROR)
    (settled,) = await driver.hasten(run_id, "1/c1")
    again = await driver.claim(settled.deliveries[0])
    assert (again.kept, again.answer) == (lease.kept, lease.answer)


async def _polled(driver: StoreDriver, lease: Lease, kept: str = '{"task": "t"}') -> Settled:
    waits = Postpone(5.0, "crm", WaitReason.REMOTE_TASK, begun=True, kept=kept)
    return await driver.store.steps.settle(lease, waits)


async def test_a_task_is_asked_for_again_by_any_worker_and_holds_nothing(driver: StoreDriver) -> None:
    run_id, lease = await _call(driver)
    for poll in range(3):
        await _polled(driver, lease, f'{{"task": "t", "polls": {poll}}}')
        run = await driver.get(run_id)
        assert run.waiting is not None
        assert (run.status, run.waiting.reason, run.waiting.code) == ("running", "remote_task", "crm")
        (settled,) = await driver.hasten(run_id, "1/c1")
        lease = await driver.claim(settled.deliveries[0], f"w{poll}")
        assert (lease.kept, lease.attempt, lease.answer) == (f'{{"task": "t", "polls": {poll}}}', 1, None)
    # However often it is asked, the log has one word about it.
    assert [event.type for event in await driver.events(run_id)].count("run.waiting") == 1
    await driver.answer(lease)
    assert await driver.results(run_id) == [("c1", "42")]


async def test_a_worker_that_is_lost_while_it_asks_loses_nothing(driver: StoreDriver) -> None:
    run_id, lease = await _call(driver)
    await _polled(driver, lease)
    (settled,) = await driver.hasten(run_id, "1/c1")
    lost = await driver.claim(settled.deliveries[0])
    (settled,) = await driver.lose(lost)
    (delivery,) = settled.deliveries
    lease = await driver.claim(delivery, "w2")
    assert lease.kept == '{"task": "t"}'
    handed = await driver.hand_back(lease)
    assert (await driver.claim(handed.deliveries[0], "w3")).kept == '{"task": "t"}'


async def test_a_task_may_ask_and_its_answer_may_be_lost_with_a_worker(driver: StoreDriver) -> None:
    run_id, lease = await _call(driver)
    await _polled(driver, lease)
    (settled,) = await driver.hasten(run_id, "1/c1")
    await _ask(driver, await driver.claim(settled.deliveries[0]), kept='{"task": "t", "key": "k"}')
    action = await driver.action(run_id, "c1")
    acted = await driver.act(run_id, reply(action.id))
    lease = await driver.claim(acted.settled.deliveries[0])
    assert (lease.kept, lease.answer) == ('{"task": "t", "key": "k"}', '{"action": "accept"}')
    (settled,) = await driver.lose(lease)
    lease = await driver.claim(settled.deliveries[0], "w2")
    assert (lease.kept, lease.answer) == ('{"task": "t", "key": "k"}', '{"action": "accept"}')
    # The server was away, perhaps: what is kept says whether the answer was passed on.
    await _polled(driver, lease, '{"task": "t", "key": "k"}')
    (settled,) = await driver.hasten(run_id, "1/c1")
    lease = await driver.claim(settled.deliveries[0])
    assert lease.answer == '{"action": "accept"}'
    # The next question is another one.
    await _ask(driver, lease, kept='{"task": "t", "key": "l"}')
    second = await driver.action(run_id, "c1")
    acted = await driver.act(run_id, reply(second.id, "decline"))
    assert (await driver.claim(acted.settled.deliveries[0])).answer == '{"action": "decline"}'


@pytest.mark.parametrize("asks", [True, False])
async def test_answers_of_the_store_may_get_lost(driver: StoreDriver, asks: bool) -> None:
    with driver.answers_get_lost():
        run_id, lease = await _call(driver)
        await (_ask(driver, lease) if asks else _polled(driver, lease))
        if asks:
            action = await driver.action(run_id, "c1")
            (delivery,) = (await driver.act(run_id, reply(action.id))).settled.deliveries
        else:
            (settled,) = await driver.hasten(run_id, "1/c1")
            (delivery,) = settled.deliveries
        again = await driver.claim(delivery)
        await driver.answer(again)
        assert await driver.results(run_id) == [("c1", "42")]
    stale = Delivery("tools", run_id, again.conversation_id, "1/c1", 9)
    assert isinstance(await driver.try_claim(stale), Stray)


async def test_who_answers_a_question_has_spoken_into_the_run(driver: StoreDriver) -> None:
    run_id, deliveries = await driver.turn("c1", "c2", approval=["c2"], second_person=["c2"])
    await _ask(driver, await driver.claim(deliveries[0]))
    question, approval = await driver.action(run_id, "c1"), await driver.action(run_id, "c2")
    await driver.act(run_id, reply(question.id), by="bob")
    with pytest.raises(StateConflict) as refused:
        await driver.act(run_id, approve(approval.id), by="bob")
    assert refused.value.code == "second_person_required"
    await driver.act(run_id, say("go on"))


async def _lacked(driver: StoreDriver, lease: Lease) -> Settled:
    return await driver.store.steps.settle(lease, Postpone(0.1, "tool:calculator", WaitReason.NO_WORKER))


async def test_a_task_whose_tool_no_worker_has_waits_for_one_that_has_it(driver: StoreDriver) -> None:
    run_id, lease = await _call(driver)
    await _polled(driver, lease)
    for worker in ("w2", "w3"):
        (settled,) = await driver.hasten(run_id, "1/c1")
        lease = await driver.claim(settled.deliveries[0], worker)
        await _lacked(driver, lease)
        run = await driver.get(run_id)
        assert run.waiting is not None
        assert (run.status, run.waiting.reason, run.waiting.code) == ("running", "no_worker", "tool:calculator")
    (settled,) = await driver.hasten(run_id, "1/c1")
    lease = await driver.claim(settled.deliveries[0], "w4")
    assert (lease.kept, lease.attempt, lease.lacking_for > 0) == ('{"task": "t"}', 1, True)
    await driver.answer(lease)
    assert await driver.results(run_id) == [("c1", "42")]


@pytest.mark.parametrize("asks", [True, False])
async def test_where_none_comes_the_run_ends_and_says_that_the_call_had_begun(driver: StoreDriver, asks: bool) -> None:
    run_id, lease = await _call(driver)
    if asks:
        await _ask(driver, lease)
        action = await driver.action(run_id, "c1")
        (delivery,) = (await driver.act(run_id, reply(action.id))).settled.deliveries
    else:
        await _polled(driver, lease)
        (settled,) = await driver.hasten(run_id, "1/c1")
        (delivery,) = settled.deliveries
    await _lacked(driver, await driver.claim(delivery, "w2"))
    (settled,) = await driver.hasten(run_id, "1/c1")
    lease = await driver.claim(settled.deliveries[0], "w2")
    failure = Failure.of(ErrorClass.NO_WORKER, message="for an hour no worker has had the tool 'calculator'")
    assert (await driver.store.steps.settle(lease, GiveUp(failure, StopReason.ERROR))).status == "failed"
    run = await driver.get(run_id)
    assert run.error is not None
    assert (run.error["class"], run.error["step"]) == ("no_worker", "1/c1")
    assert await driver.results(run_id) == [("c1", f"{failure.message}. The call had begun. {_UNKNOWN}")]
    assert run.error["message"] == failure.message
