"""Ways to ask for a payment by OpenAI's dialect."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tests.unit.asking import YES, Ways, streamed, teller
from tests.unit.test_api_second_person import PAY, Office

WAYS: Final = Ways()
way = WAYS.by


@way("POST /openai/v1/responses")
async def _respond(desk: Office) -> dict[str, Any]:
    await teller(desk)
    await desk.have("ann", "POST", "/openai/v1/responses", {"model": "teller", "input": PAY, "background": True})
    return (await desk.runs())[0]


@way("POST /openai/v1/chat/completions")
async def _complete(desk: Office) -> dict[str, Any]:
    await teller(desk)
    body = {"model": "teller", "messages": [{"role": "user", "content": PAY}], "stream": True}
    run = await streamed(desk, "/openai/v1/chat/completions", {**body, "run": {"on_disconnect": "continue"}})
    # A completion that sees its run wait for a decision cancels it: its client goes before.
    asking = desk.asking.pop()
    asking.cancel()
    await asyncio.wait([asking])
    return run


ITEM: Final = {"type": "message", "role": "user", "content": PAY}


async def _answered(desk: Office, conversation: str) -> dict[str, Any]:
    body = {"model": "teller", "input": "go on", "conversation": conversation, "background": True}
    await desk.have("bob", "POST", "/openai/v1/responses", body)
    return (await desk.runs())[0]


@way("POST /openai/v1/conversations")
async def _begin_with_items(desk: Office) -> dict[str, Any]:
    await teller(desk)
    made = await desk.have("ann", "POST", "/openai/v1/conversations", {"items": [ITEM]})
    return await _answered(desk, made["id"])


@way("POST /openai/v1/conversations/{conversation_id}/items")
async def _add_items(desk: Office) -> dict[str, Any]:
    await teller(desk)
    made = await desk.have("bob", "POST", "/openai/v1/conversations", {})
    await desk.have("ann", "POST", f"/openai/v1/conversations/{made['id']}/items", {"items": [ITEM]})
    return await _answered(desk, made["id"])


WORDS: Final[dict[str, tuple[str, str, Any]]] = {
    "OpenAI's message": (
        "POST", "/openai/v1/responses",
        {"model": "teller", "input": YES, "conversation": "{conversation}", "background": True},
    ),
    "OpenAI's message behind the response": (
        "POST", "/openai/v1/responses",
        {"model": "teller", "input": YES, "previous_response_id": "{response}", "background": True},
    ),
    "OpenAI's item": ("POST", "/openai/v1/conversations/{conversation}/items", {"items": [ITEM]}),
}  # fmt: skip
