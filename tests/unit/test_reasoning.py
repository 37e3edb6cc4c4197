"""What a provider no longer takes back is left out once, as long as nobody has seen anything of the answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from palaver.errors import ProviderHTTPError
from palaver.schemas.models import AgentSpec, Usage
from workers.protocols import CHAT_COMPLETIONS, ModelReply
from workers.steps.asking import ask_model

REPLY = ModelReply("fine", (), "stop", Usage())


class Asked:
    """A step whose model refuses what it made, after it has shown some of what it thinks, or nothing."""

    def __init__(self, *, thoughts: str) -> None:
        self.seen: list[str] = []
        self.left_out = False
        self._thoughts = thoughts
        self.lease = SimpleNamespace(agent=AgentSpec(model="a/b"), run_id="run_1", step="3")
        self.stream = SimpleNamespace(shown=False, show=self._show)
        self.prompt = SimpleNamespace(
            agent=self.lease.agent,
            protocol=CHAT_COMPLETIONS,
            messages=list,
            too_long=None,
            condensed=False,
            bytes=100,
            drop_reasoning=self._drop_reasoning,
        )
        self.calls = SimpleNamespace(ask=self._ask)

    def _show(self, text: str, thoughts: str) -> None:
        self.stream.shown = True
        self.seen.append(thoughts)

    def _drop_reasoning(self) -> bool:
        self.left_out, before = True, self.left_out
        return not before

    async def _ask(self, *_: Any, show: Any) -> ModelReply:
        if self._thoughts:
            show("", self._thoughts)
        if not self.left_out:
            raise ProviderHTTPError(200, b'{"error": {"code": "invalid_encrypted_content"}}')
        return REPLY


async def test_it_is_asked_once_more_without_it() -> None:
    attempt: Any = Asked(thoughts="")
    assert await ask_model(attempt) is REPLY
    assert attempt.left_out


async def test_thoughts_that_were_seen_are_not_shown_twice() -> None:
    attempt: Any = Asked(thoughts="hm")
    with pytest.raises(ProviderHTTPError):
        await ask_model(attempt)
    assert attempt.seen == ["hm"]
