"""A run whose own log cannot be read ends at once, and says that it is our fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from palaver.config.settings import Settings
from palaver.schemas.models import Message
from palaver.steps.leases import LogMessage, Settled
from palaver.steps.retry import MODEL_CALL
from palaver.steps.verdicts import GiveUp, Verdict
from palaver.vocabulary.step_kinds import MODEL
from tests.unit.test_conversations import lease
from workers.protocols.chat_completions import ChatCompletions
from workers.steps import step
from workers.steps.active_step import ActiveStep
from workers.steps.attempt import StepHandler
from workers.steps.conversation_cache import ConversationCache
from workers.steps.in_place import InPlace
from workers.steps.step_functions import call_model

BROUGHT = (
    LogMessage(1, Message(role="user", content="go")),
    LogMessage(2, Message(role="assistant", content="So")),
)


class Unreadable(ChatCompletions):
    """A protocol that cannot write what a model said."""

    def message(self, message: Message, opaque: str = "") -> bytes:
        if message.role == "assistant":
            raise ValueError("nobody foresaw this")
        return super().message(message, opaque)


class Limiter:
    """Of a provider without limits."""

    def permit(self, *_: Any) -> Any:
        return SimpleNamespace(probes=False)

    async def met_outage(self, *_: Any, patient: bool) -> None:
        return None

    async def apply(self, lease: Any, verdict: Verdict) -> Verdict:
        return verdict


@contextmanager
def working_on(run_id: str, name: str) -> Iterator[ActiveStep]:
    yield ActiveStep(run_id, name)


async def follow_up(settled: Settled) -> None:
    """Nothing follows."""


async def lacks_nothing(*_: Any) -> None:
    """This worker can do it."""


async def test_it_ends_as_internal_and_nothing_half_read_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    conversations, protocol = ConversationCache(), Unreadable()
    claimed = lease(*BROUGHT)
    known = conversations.load(None, lease(BROUGHT[0]), protocol)
    runtime: Any = SimpleNamespace(
        conversations=conversations,
        terms=SimpleNamespace(protocol=lambda agent: protocol),
        limiter=Limiter(),
        store=None,
        deltas=None,
        capabilities=SimpleNamespace(missing_capability=lacks_nothing),
        with_another_key=lacks_nothing,
        histograms=SimpleNamespace(settled=lambda *_: None),
        working_on=working_on,
        follow_up=follow_up,
        in_place=InPlace(Settings(), "w1", 1, set(), ("model",)),
    )
    settled: list[Verdict] = []

    async def claim(*_: Any) -> Any:
        return claimed

    async def settle(_: Any, lease: Any, verdict: Verdict, **__: Any) -> Settled:
        settled.append(verdict)
        return Settled("failed", (), None)

    monkeypatch.setattr(step, "claim", claim)
    monkeypatch.setattr(step, "settle", settle)
    assert known is conversations.get("conv")
    with pytest.raises(step.StepFailed):
        await step.make_attempt(
            lambda _: StepHandler(MODEL, MODEL_CALL, call_model), runtime, MODEL, "run", "conv", "1"
        )
    (verdict,) = settled
    assert isinstance(verdict, GiveUp)
    assert (verdict.failure.error_class, verdict.failure.retryable) == ("internal", False)
    assert conversations.get("conv") is None
