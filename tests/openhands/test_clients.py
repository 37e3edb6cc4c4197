"""What the clients of both generations take for an event, and what they do not: the mapping must hold to it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from features.openhands.content import agents_tool, clients_tool
from features.openhands.events import Writer
from features.openhands.state import Generation
from tests.openhands.client import OpenHandsClient
from tests.openhands.log import BEGAN, CONVERSATION, LOG, SHOW

pytestmark = pytest.mark.process
MESSAGE: Final[dict[str, Any]] = {
    "kind": "MessageEvent",
    "id": "00000000-0000-4000-8000-000000000002",
    "timestamp": "2026-01-01T00:00:00.000001",
    "source": "user",
    "llm_message": {"role": "user", "content": [{"type": "text", "text": "hi"}]},
}


def test_a_plain_message_is_an_event(openhands: OpenHandsClient) -> None:
    assert openhands.refuses([MESSAGE]) is None


def test_the_older_generation_refuses_what_is_new_in_the_other(openhands: OpenHandsClient) -> None:
    newer = {**MESSAGE, "parent_id": MESSAGE["id"]}
    assert (openhands.refuses([newer]) is None) == (openhands.generation == "1.58.2")


def test_no_generation_takes_a_kind_that_it_does_not_know(openhands: OpenHandsClient) -> None:
    assert openhands.refuses([MESSAGE, {**MESSAGE, "kind": "PalaverEvent"}])[0]["kind"] == "PalaverEvent"


def test_a_client_takes_every_event_that_it_is_told(openhands: OpenHandsClient) -> None:
    writer = Writer(CONVERSATION, Generation.NEWER if openhands.generation == "1.58.2" else Generation.OLDER)
    tools = [*(agents_tool(each, None) for each in ("finish", "think", "add")), clients_tool(SHOW, newer=False)]
    events = [writer.system_prompt(BEGAN, "You help.", tools), *(event for each in LOG for event in writer.of(each))]
    assert openhands.refuses(events) is None


def test_the_older_client_would_refuse_what_the_newer_is_told(openhands: OpenHandsClient) -> None:
    writer = Writer(CONVERSATION, Generation.NEWER)
    refused = openhands.refuses([event for each in LOG for event in writer.of(each)])
    assert (refused is None) == (openhands.generation == "1.58.2")
