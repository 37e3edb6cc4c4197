"""What an attempt did to the conversation besides its outcome: nudges and summaries, and what all its calls used."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import StaleLease
from palaver.schemas.models import Message, ToolCall, Usage
from palaver.steps.stuck import Nudge
from palaver.steps.verdicts import (
    Condensed,
    Continue,
    Finish,
    GiveUp,
    ReasoningDropped,
    RetryAfter,
    ToolOutcome,
    Verdict,
)
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from tests.contract.store_driver import INTERNAL, RATE_LIMITED, StoreDriver

NOTES = (Condensed("so far", 2), Nudge("Try something else."))
USED = Usage(input_tokens=700, output_tokens=40, model_calls=3)
CALL = ToolCall(id="c1", name="calculator")
ANSWERED = ToolOutcome(Message(role="tool", call_id="c1", name="calculator", content="4"))
VERDICTS: dict[str, Verdict] = {
    "goes on": Continue(Message(role="assistant", tool_calls=(CALL,)), (ANSWERED,), usage=USED, notes=NOTES),
    "ends": Finish(Message(role="assistant", content="bye"), StopReason.END_TURN, usage=USED, notes=NOTES),
    "tries again": RetryAfter(1, RATE_LIMITED, usage=USED, notes=NOTES),
    "gives up": GiveUp(INTERNAL, StopReason.ERROR, usage=USED, notes=NOTES),
}


async def kinds(driver: StoreDriver, run_id: str) -> list[str]:
    conversation = (await driver.get(run_id)).conversation_id
    return [entry.type for entry in await driver.store.runs.entries(conversation, limit=100)]


@pytest.mark.parametrize("verdict", VERDICTS.values(), ids=VERDICTS.keys())
async def test_they_are_in_the_log_before_the_outcome_whatever_it_is(driver: StoreDriver, verdict: Verdict) -> None:
    run_id, lease = await driver.begin()
    await driver.store.steps.settle(lease, verdict)

    entries = await driver.store.runs.entries(lease.conversation_id, limit=100)
    added = [entry for entry in entries if entry.position > lease.log.position][:2]
    assert [entry.type for entry in added] == ["conversation.condensed", "message.created"]
    assert added[0].data == {"step": "1", "summary": "so far", "through": 2}
    assert (added[1].data["message"]["role"], added[1].data["nudge"]) == ("user", True)
    assert added[1].data["message"]["content"] == "Try something else."
    assert (await driver.get(run_id)).usage == USED.model_copy(
        update={"tool_calls": int(isinstance(verdict, Continue))}
    )


async def test_the_next_worker_is_told_what_they_are(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    verdict = Continue(
        Message(role="assistant", tool_calls=(CALL,)), (ANSWERED,), usage=USED, notes=NOTES, prompt_tokens=650
    )
    (delivery,) = (await driver.store.steps.settle(lease, verdict)).deliveries

    entries = (await driver.claim(delivery, known=lease.log.position)).log.entries
    assert {entry.run_id for entry in entries} == {run_id}
    assert [(each.message.role, each.nudge, each.through, each.prompt_tokens) for each in entries] == [
        ("user", False, 2, 0), ("user", True, 0, 0), ("assistant", False, 0, 650), ("tool", False, 0, 0),
    ]  # fmt: skip
    assert [each.message.content for each in entries[:2]] == ["so far", "Try something else."]


async def test_a_settle_that_is_repeated_adds_them_once(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    for _ in range(2):
        await driver.store.steps.settle(lease, VERDICTS["goes on"])

    assert (await kinds(driver, run_id)).count("conversation.condensed") == 1
    assert (await driver.get(run_id)).usage.model_calls == 3


@pytest.mark.parametrize("verdict", VERDICTS.values(), ids=VERDICTS.keys())
async def test_a_stale_fence_adds_none(driver: StoreDriver, verdict: Verdict) -> None:
    run_id, stale = await driver.begin()
    await driver.lose(stale)
    before = await kinds(driver, run_id)
    with pytest.raises(StaleLease):
        await driver.store.steps.settle(stale, verdict)
    assert await kinds(driver, run_id) == before
    assert (await driver.get(run_id)).usage == Usage(cost_usd=0.0)


@pytest.mark.parametrize("verdict", VERDICTS.values(), ids=VERDICTS.keys())
async def test_a_cancel_keeps_what_was_said_to_the_model(driver: StoreDriver, redis: Any, verdict: Verdict) -> None:
    run_id, lease = await driver.begin()
    await driver.store.runs.cancel(run_id)
    await driver.store.steps.settle(lease, verdict)

    run = await driver.get(run_id)
    assert run.status is RunStatus.CANCELLED
    assert run.usage.model_calls == 3
    assert (await kinds(driver, run_id)).count("conversation.condensed") == 1


async def test_what_a_provider_no_longer_takes_back_is_told_to_the_next_worker(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    answer = Message(role="assistant", tool_calls=(CALL,))
    verdict = Continue(answer, (ANSWERED,), notes=(ReasoningDropped("responses/fake/x"),))
    (delivery,) = (await driver.store.steps.settle(lease, verdict)).deliveries

    entries = (await driver.claim(delivery, known=lease.log.position)).log.entries
    assert [(each.message.role, each.drops) for each in entries] == [
        ("user", "responses/fake/x"), ("assistant", ""), ("tool", ""),
    ]  # fmt: skip
