"""What an attempt says of a call before it makes it, if its tenant has caps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from palaver.errors import UnknownPrice
from palaver.schemas.models import AgentSpec
from palaver.store.scripting.contracts.providers import Wait
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.step_kinds import MODEL
from tests.unit.test_prices import Providers
from workers.models.call_clock import CallProgress
from workers.models.refused_tools import RefusedTools
from workers.protocols import CHAT_COMPLETIONS, CallSettings, ModelReply
from workers.steps.attempt_notes import AttemptNotes
from workers.steps.conversations import CachedConversation
from workers.steps.histograms import Histograms
from workers.steps.model_calls import ModelCalls
from workers.steps.prompt import Prompt

USAGE = {"prompt_tokens": 1_000_000}
REACHED = Wait("usd_per_day", 60.0, of_tenant=True)


class Attempt:
    """The calls of an attempt, and what its tenant's caps were asked."""

    def __init__(self, *answers: Wait | None, money: bool = True, usages: list[Any] | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self.left_uncalled = 0
        self.model = Providers(usages or [USAGE] * 3)
        self._answers = list(answers)
        permit = SimpleNamespace(begin_call=lambda: None, leave_uncalled=self.leave_uncalled)
        runtime: Any = SimpleNamespace(
            refused_tools=RefusedTools(),
            model=self.model,
            terms=self.model,
            limiter=SimpleNamespace(permit=lambda *_: permit),
            tools=(),
            histograms=Histograms(MODEL),
            store=SimpleNamespace(caps=self),
        )
        lease: Any = SimpleNamespace(
            run_id="run_1", step="1", try_number=1, time_left=60.0, money_capped=money, rate_capped=not money
        )
        prompt = Prompt(lease, CachedConversation(CHAT_COMPLETIONS))
        self.calls = ModelCalls(lease, runtime, CallProgress(), AttemptNotes(), prompt)

    async def leave_uncalled(self) -> None:
        self.left_uncalled += 1

    async def reserve(self, lease: Any, call: int, **facts: Any) -> Wait | None:
        self.asked.append({"call": call, **facts})
        return self._answers.pop(0) if self._answers else None

    async def ask(self, **agent: Any) -> ModelReply | Wait:
        spec = AgentSpec(**{"model": "x/b"} | agent)
        return await self.calls.ask(spec, CHAT_COMPLETIONS, [], purpose="condense")


def sent(agent: AgentSpec) -> int:
    """The bytes of its request."""
    return len(CHAT_COMPLETIONS.body(agent, [], [], CallSettings()))


async def test_a_call_says_what_it_may_cost_and_those_before_it_what_they_did() -> None:
    attempt = Attempt()
    for limit in (None, 1000):
        await attempt.ask(max_output_tokens=limit)
    first, second = attempt.asked
    bytes_sent = sent(AgentSpec(model="x/b"))
    least = bytes_sent * 100 / 1e6
    assert first == {"call": 1, "spent": 0.0, "least": least, "most": least, "tokens": bytes_sent // 4}
    assert (second["call"], second["spent"]) == (2, 100.0)
    assert second["tokens"] == sent(AgentSpec(model="x/b", max_output_tokens=1000)) // 4 + 1000


async def test_an_answer_without_a_limit_is_counted_as_a_long_one() -> None:
    attempt = Attempt()
    attempt.model.provider(AgentSpec(model="x/b")).prices["c"] = (  # type: ignore[union-attr]
        attempt.model.price(AgentSpec(model="x/b")).model_copy(update={"output": 1000.0})  # type: ignore[union-attr]
    )
    for limit in (None, 10):
        await attempt.ask(model="x/c", max_output_tokens=limit)
    outputs = [round(each["most"] - each["least"], 9) for each in attempt.asked]
    assert outputs == [limit_of("unlimited_answer") * 1000 / 1e6, 0.01]


async def test_nobody_knows_the_cost_of_a_call_without_a_count() -> None:
    attempt = Attempt(usages=[None, USAGE])
    await attempt.ask()
    await attempt.ask()
    assert [each["spent"] for each in attempt.asked] == [0.0, None]


async def test_a_call_that_a_cap_does_not_allow_is_not_made() -> None:
    attempt = Attempt(REACHED)
    assert await attempt.ask() is REACHED
    assert (attempt.calls.tally.usage.model_calls, attempt.left_uncalled) == (0, 1)
    attempt = Attempt(None, REACHED)
    await attempt.ask()
    assert await attempt.ask() is REACHED
    # The place at the provider is given back with what the first one took.
    assert (attempt.calls.tally.usage.model_calls, attempt.left_uncalled) == (1, 0)


async def test_under_a_cap_in_money_a_model_has_a_price() -> None:
    attempt = Attempt()
    with pytest.raises(UnknownPrice, match="y/a has no price, and the tenant has a cap in money"):
        await attempt.ask(model="y/a")
    assert attempt.asked == []
    rates = Attempt(money=False)
    await rates.ask(model="y/a")
    assert (rates.asked[0]["least"], rates.asked[0]["most"]) == (0.0, 0.0)
