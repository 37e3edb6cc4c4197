"""The same for the routes of AG-UI."""

from __future__ import annotations

from typing import Any, Final

from palaver.vocabulary.limits import limit_of
from tests.cost.requests import CALLS, Ask, Case, asked, failed, fields
from tests.unit.api_world import World

_AGENT: Final = "POST /ag-ui/agents/{name}"
_CANCEL: Final = "POST /ag-ui/threads/{thread_id}/cancel"
_VALUES: Final = 9_000
"""Fields of a body, about as many values as there may be."""


def _body(**more: Any) -> dict[str, Any]:
    return {"threadId": "thread", "runId": "run", "messages": [], **more}


async def _unknown(api: World, n: int) -> Ask:
    return Ask("/ag-ui", _body(**fields(n)))


async def _unread(api: World, n: int) -> Ask:
    answered = {"id": "m", "role": "assistant", "content": "hello"}
    return Ask("/ag-ui/agents/support", _body(messages=[answered] * n))


async def _said(api: World, n: int) -> Ask:
    """Nobody is to answer them."""
    said = {"id": "m", "role": "user", "content": "hello"}
    return Ask("/ag-ui/agents/nobody", _body(messages=[said] * n))


async def _shown(api: World, n: int) -> Ask:
    unknown = [{"id": f"m{k}", "role": "user", "content": "hello"} for k in range(n)]
    answered = {"id": "m", "role": "assistant", "content": "hello"}
    return Ask("/ag-ui", _body(threadId=(await failed(api, n))["conversation_id"], messages=[*unknown, answered]))


async def _answers(api: World, n: int) -> Ask:
    """No run waits for them."""
    payload = {"approved": True}
    resume = [{"interruptId": f"run_1:act_{k}", "status": "resolved", "payload": payload} for k in range(n)]
    return Ask("/ag-ui/agents/support", _body(resume=resume))


async def _stopped(api: World, n: int) -> Ask:
    return Ask(f"/ag-ui/threads/{(await asked(api, n))['conversation_id']}/cancel", {})


async def _unknown_wish(api: World, n: int) -> Ask:
    return Ask("/ag-ui/threads/thread/cancel", fields(n))


AG_UI_CASES: Final = (
    Case("POST /ag-ui", "unknown fields", _VALUES, _unknown),
    Case("POST /ag-ui", "messages that are shown", limit_of("input_messages"), _shown),
    Case(_AGENT, "messages that are not read", 2_000, _unread),
    Case(_AGENT, "messages that are read", 2_000, _said),
    Case(_AGENT, "answers", limit_of("run_items"), _answers),
    Case(_CANCEL, "open calls", CALLS, _stopped),
    Case(_CANCEL, "unknown fields", _VALUES, _unknown_wish),
)
