"""Ways to ask for a payment by the AI SDK's dialect."""

from __future__ import annotations

from typing import Any, Final

from features.ai_sdk.tests.unit.chat_page import said
from tests.unit.asking import YES, Ways, streamed, teller
from tests.unit.test_api_second_person import PAY, Office

WAYS: Final = Ways()
way = WAYS.by


@way("POST /ui/agents/{name}/chat")
async def _chat(desk: Office) -> dict[str, Any]:
    await teller(desk)
    body = {"id": "chat-1", "messages": [said(PAY)], "trigger": "submit-message"}
    return await streamed(desk, "/ui/agents/teller/chat", body)


WORDS: Final[dict[str, tuple[str, str, Any]]] = {
    "the AI SDK's message": (
        "POST", "/ui/agents/teller/chat",
        {"id": "{conversation}", "messages": [said(YES)], "trigger": "submit-message"},
    ),
}  # fmt: skip
