"""What a conversation used: all that its runs used, each once, whatever becomes of them."""

from __future__ import annotations

from palaver.schemas.conversation import Fork
from palaver.schemas.models import Message, ToolCall, Usage
from palaver.steps.verdicts import Continue, Finish, GiveUp, ToolOutcome
from palaver.vocabulary.lifecycle import StopReason
from tests.contract.store_driver import INTERNAL, StoreDriver

ASKS = Message(role="assistant", tool_calls=(ToolCall(id="c1", name="calculator"),))
ANSWERED = ToolOutcome(Message(role="tool", call_id="c1", name="calculator", content="42"))
BYE = Message(role="assistant", content="bye")


def _used(tokens: int, cost: float | None = 0.25) -> Usage:
    return Usage(input_tokens=tokens, output_tokens=1, model_calls=1, cost_usd=cost)


async def _usage(driver: StoreDriver, conversation_id: str) -> Usage:
    return (await driver.store.runs.conversation(conversation_id)).usage


async def test_runs_add_up_while_they_go_on_and_when_they_have_ended(driver: StoreDriver) -> None:
    with driver.answers_get_lost():
        _, lease = await driver.begin()
        conversation = lease.conversation_id
        assert await _usage(driver, conversation) == Usage(cost_usd=0.0)
        settled = await driver.store.steps.settle(lease, Continue(ASKS, (ANSWERED,), usage=_used(30)))
        begun = _used(30).model_copy(update={"tool_calls": 1})
        assert await _usage(driver, conversation) == begun
        lease = await driver.claim(settled.deliveries[0])
        await driver.store.steps.settle(lease, GiveUp(INTERNAL, StopReason.ERROR, usage=_used(5)))
        failed = Usage(input_tokens=35, output_tokens=2, model_calls=2, tool_calls=1, cost_usd=0.5)
        assert await _usage(driver, conversation) == failed

        second, lease = await driver.begin(conversation_id=conversation)
        await driver.store.runs.cancel(second)
        await driver.hand_back(lease, usage=_used(7))
        assert (await driver.get(second)).status.terminal
        cancelled = Usage(input_tokens=42, output_tokens=3, model_calls=3, tool_calls=1, cost_usd=0.75)
        assert await _usage(driver, conversation) == cancelled


async def test_one_call_of_an_unknown_cost_makes_all_unknown(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    await driver.store.steps.settle(lease, Finish(BYE, StopReason.END_TURN, usage=_used(1, None)))
    _, lease = await driver.begin(conversation_id=lease.conversation_id)
    await driver.store.steps.settle(lease, Finish(BYE, StopReason.END_TURN, usage=_used(1)))
    assert (await _usage(driver, lease.conversation_id)).cost_usd is None


async def test_what_a_deleted_run_used_stays_and_a_fork_begins_anew(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.store.steps.settle(lease, Finish(BYE, StopReason.END_TURN, usage=_used(3)))
    forked, _ = await driver.store.history.fork(lease.conversation_id, Fork())
    await driver.store.control.delete_run(run_id)
    assert (await _usage(driver, lease.conversation_id)).input_tokens == 3
    assert (await _usage(driver, forked.id)).input_tokens == 0
