"""Model protocols: one module each, chosen by ``protocol`` of the provider.

Nothing else in Palaver knows what a request or an answer of a provider looks like.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from palaver.config.providers import Provider
from palaver.schemas.protocols import ProtocolName

from .chat_completions import ChatCompletions
from .declared_calls import as_declared
from .messages import Messages
from .port import PAUSE, WITHHELD, AnswerReader, CallSettings, ModelProtocol, ModelReply, Offer
from .responses import Responses
from .without_addresses import WithoutAddresses

__all__ = [
    "CHAT_COMPLETIONS",
    "MESSAGES",
    "PAUSE",
    "PROTOCOLS",
    "RESPONSES",
    "WITHHELD",
    "AnswerReader",
    "CallSettings",
    "ModelProtocol",
    "ModelReply",
    "Offer",
    "as_declared",
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
_WITHOUT_ADDRESSES: Final[Mapping[ModelProtocol, ModelProtocol]] = MappingProxyType(
    {protocol: WithoutAddresses(protocol) for protocol in (*PROTOCOLS.values(), _SHORT_IDS)}
)


def protocol_of(provider: Provider) -> ModelProtocol:
    """Return the protocol that this provider speaks."""
    protocol = _SHORT_IDS if provider.short_call_ids else PROTOCOLS[provider.protocol]
    return protocol if provider.fetches else _WITHOUT_ADDRESSES[protocol]
