"""Whole requests, byte for byte: what a provider caches, signs or counts may not move by a byte without being meant to.

`golden/<conversation>.txt` has a line for each protocol: its name, and the body. With REWRITE_PAGES=1 in the
environment they are written anew; then read the difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from palaver.schemas.models import AgentSpec
from palaver.schemas.protocols import ProtocolName
from palaver.steps.leases import LogMessage
from tests.unit.golden_conversations import CONVERSATIONS, MODEL, Conversation
from workers.protocols import PROTOCOLS, Offer
from workers.steps.conversations import CachedConversation

GOLDEN: Final = Path(__file__).parent / "golden"
OFFERS: Final = [
    Offer("add", "Add.", {"type": "object", "properties": {"y": {"type": "number"}, "x": {}}}),
    Offer("now", "", {}),
]


def body(conversation: Conversation, protocol: ProtocolName, *parts: Sequence[LogMessage]) -> bytes:
    """The request of a worker that read the log in these parts."""
    agent = AgentSpec.model_validate_json(json.dumps({"model": MODEL, **conversation.agent}))
    known = CachedConversation(PROTOCOLS[protocol], MODEL)
    for part in parts:
        known.extend(part, part[-1].position if part else known.position)
    return PROTOCOLS[protocol].body(agent, known.messages(), OFFERS, conversation.settings)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda each: each.name)
def test_a_request_is_what_it_was(conversation: Conversation, protocol: ProtocolName) -> None:
    entries = conversation.entries(protocol)
    sent = body(conversation, protocol, entries)
    for cut in range(len(entries)):
        assert body(conversation, protocol, entries[:cut], entries[cut:]) == sent, "a worker that knew a part of it"
    path = GOLDEN / f"{conversation.name}.txt"
    lines = dict(line.split(b" ", 1) for line in path.read_bytes().splitlines()) if path.exists() else {}
    if os.environ.get("REWRITE_PAGES"):
        lines[protocol.encode()] = sent
        path.write_bytes(b"".join(b"%b %b\n" % line for line in sorted(lines.items())))
    assert lines.get(protocol.encode()) == sent, "if it is to be this: REWRITE_PAGES=1"


def test_every_golden_request_is_one_of_a_conversation() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {each.name for each in CONVERSATIONS}
