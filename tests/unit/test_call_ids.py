"""Ids of calls that another provider made, or a user: each protocol sends them legal, and no two as one."""

from __future__ import annotations

import re
from typing import Final

import orjson
import pytest

from palaver.schemas.models import Message, ToolCall
from workers.protocols import MESSAGES, RESPONSES, ModelProtocol

LONG: Final = "c" * 62
ALIKE: Final = (LONG + "01", LONG + "02", LONG, LONG + "01-more", "a.b", "a:b", "a_b", "c")
MADE: Final = re.compile(r'"(?:id|call_id)":"([^"]*)"')
ANSWERED: Final = re.compile(r'"(?:tool_use_id|call_id)":"([^"]*)"')


def sent(protocol: ModelProtocol, place: int) -> tuple[list[str], list[str]]:
    """The ids of calls, and those that results have."""
    asks = Message(role="assistant", tool_calls=tuple(ToolCall(id=each, name="add") for each in ALIKE))
    results = [Message(role="tool", call_id=each, content="2") for each in ALIKE]
    first, *rest = protocol.turn(asks, results, place=place)
    orjson.loads(b"[%b]" % first)
    return MADE.findall(first.decode()), ANSWERED.findall(b"".join(rest).decode())


@pytest.mark.parametrize("protocol", [MESSAGES, RESPONSES], ids=lambda each: str(each.name))
def test_ids_that_begin_alike_are_told_apart(protocol: ModelProtocol) -> None:
    calls, results = sent(protocol, 7)
    assert calls == results
    assert len(set(calls)) == len(ALIKE)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", each) for each in calls)
    assert sent(protocol, 7) == (calls, results), "the same each time, for what has a cache"
    assert not set(calls) & set(sent(protocol, 71)[0])
