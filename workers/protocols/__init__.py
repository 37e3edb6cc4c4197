"""How models are spoken to: one module a protocol, chosen by ``protocol`` of the provider.

Nothing else in Palaver knows what a request or an answer of a provider looks like.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from palaver.providers import ProtocolName, Provider

from .chat_completions import ChatCompletions
from .messages import Messages
from .port import PAUSE, AnswerReader, CallSettings, ModelProtocol, ModelReply, Offer
from .responses import Responses

__all__ = [
    "CHAT_COMPLETIONS",
    "MESSAGES",
    "PAUSE",
    "PROTOCOLS",
    "RESPONSES",
    "AnswerReader",
    "CallSettings",
    "ModelProtocol",
    "ModelReply",
    "Offer",
    "protocol_of",
]

CHAT_COMPLETIONS: Final = ChatCompletions()
MESSAGES: Final = Messages()
RESPONSES: Final = Responses()
PROTOCOLS: Final[Mapping[ProtocolName, ModelProtocol]] = MappingProxyType(
    {"chat_completions": CHAT_COMPLETIONS, "anthropic": MESSAGES, "responses": RESPONSES}
)
"""Every protocol, by its name in the providers file."""
_SHORT_IDS: Final = ChatCompletions(short_ids=True)


def protocol_of(provider: Provider) -> ModelProtocol:
    """How this provider is spoken to."""
    return _SHORT_IDS if provider.short_call_ids else PROTOCOLS[provider.protocol]
