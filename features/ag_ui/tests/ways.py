"""Ways to ask for a payment by AG-UI's dialect."""

from __future__ import annotations

from typing import Any, Final

from features.ag_ui.tests.unit.ag_ui_page import Page
from tests.unit.asking import Ways, streamed, teller
from tests.unit.test_api_second_person import PAY, Office

WAYS: Final = Ways()
way = WAYS.by


def _thread(**more: Any) -> dict[str, Any]:
    page = Page(None, agent="teller")  # type: ignore[arg-type]
    page.say(PAY)
    return page.body(**more)


@way("POST /ag-ui/agents/{name}")
async def _speak_to_agent(desk: Office) -> dict[str, Any]:
    await teller(desk)
    return await streamed(desk, "/ag-ui/agents/teller", _thread())


@way("POST /ag-ui")
async def _speak_in_thread(desk: Office) -> dict[str, Any]:
    await teller(desk)
    return await streamed(desk, "/ag-ui", _thread(forwardedProps={"agent": "teller"}))


def _resumed(**payload: Any) -> dict[str, Any]:
    resume = {"interruptId": "{run}:{action}", "status": "resolved", **payload}
    return _thread(messages=[], threadId="{conversation}", resume=[resume])


WORDS: Final[dict[str, tuple[str, str, Any]]] = {
    "AG-UI's message": ("POST", "/ag-ui/agents/teller", _thread(threadId="{conversation}")),
    "AG-UI's output": ("POST", "/ag-ui/agents/teller", _resumed(payload={"output": "approved"})),
    "AG-UI's empty resume": ("POST", "/ag-ui/agents/teller", _resumed()),
}  # fmt: skip
