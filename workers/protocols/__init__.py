"""How models are spoken to: one module a protocol, chosen by ``protocol`` of the provider.

Nothing else in Palaver knows what a request or an answer of a provider looks like.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from palaver.providers import ProtocolName

from .chat_completions import ChatCompletions
from .port import AnswerReader, ModelProtocol, ModelReply, Offer

__all__ = ["CHAT_COMPLETIONS", "PROTOCOLS", "AnswerReader", "ModelProtocol", "ModelReply", "Offer"]

CHAT_COMPLETIONS: Final = ChatCompletions()
PROTOCOLS: Final[Mapping[ProtocolName, ModelProtocol]] = MappingProxyType({"chat_completions": CHAT_COMPLETIONS})
"""Every protocol, by its name in the providers file."""
