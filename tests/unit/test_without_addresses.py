"""A model server of one's own would fetch addresses from within one's own network: it is sent none."""

from __future__ import annotations

import pytest

from palaver.config.providers import Provider
from palaver.schemas.content import FilePart, ImagePart, TextPart
from palaver.schemas.models import Message, ToolCall
from palaver.schemas.protocols import ProtocolName
from palaver.steps.leases import LogMessage
from workers.protocols import PROTOCOLS, protocol_of
from workers.steps.conversations import CachedConversation

WITHIN = "http://127.0.0.1:1/v1"
PUBLIC = "https://api.example.com/v1"
ADDRESS = "https://metadata.example.com/latest"
DATA = "data:image/png;base64,iVBORw0KGgo="
SEEN = (
    TextPart(type="text", text="look"),
    ImagePart(type="image", url=ADDRESS),
    FilePart(type="file", url=ADDRESS, name="a.pdf"),
    ImagePart(type="image", url=DATA),
)
CALL = ToolCall(id="toolu_1", name="see")
LOG = (
    LogMessage(1, Message(role="user", content=SEEN), "run_1"),
    LogMessage(2, Message(role="assistant", tool_calls=(CALL,)), "run_1"),
    LogMessage(3, Message(role="tool", call_id=CALL.id, name="see", content=SEEN), "run_1"),
)


def sent(protocol: ProtocolName, base_url: str, *, short: bool = False) -> str:
    provider = Provider(base_url=base_url, protocol=protocol, max_output_tokens=1000, short_call_ids=short)
    conversation = CachedConversation(protocol_of(provider), "a/model")
    conversation.extend(LOG, 3)
    return b"\n".join(conversation.messages()).decode()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_came_while_a_public_provider_was_asked_is_named_in_its_place(protocol: ProtocolName) -> None:
    found = sent(protocol, WITHIN)
    assert ADDRESS not in found
    for kind in ("[image]", "[file a.pdf]"):
        # The user's, and the tool's.
        assert found.count(f"{kind} was left out here: this model is sent no addresses.") == 2
    assert found.count(DATA.rpartition(",")[2]) == 2
    assert found.count("look") == 2
    assert ADDRESS in sent(protocol, PUBLIC)


def test_ids_that_are_short_stay_so() -> None:
    found = sent("chat_completions", WITHIN, short=True)
    assert ADDRESS not in found
    assert f'"tool_call_id":"{CALL.id}"' not in found


def test_a_conversation_that_another_provider_was_sent_is_put_together_anew() -> None:
    public, within = (protocol_of(Provider(base_url=url)) for url in (PUBLIC, WITHIN))
    conversation = CachedConversation(public, "a/model")
    assert not conversation.turn_to(within, "b/model")
    assert conversation.turn_to(public, "b/model")
    assert protocol_of(Provider(base_url=WITHIN)) is within, "the next step need not read the log again"
