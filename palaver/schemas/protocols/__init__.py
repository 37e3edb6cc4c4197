"""Rules of the model protocols: what the requests of each carry, and what it wants of a provider's entry.

A row here and a module in ``workers/protocols`` are one protocol: the API refuses by the row what the workers' module
could not send, before a run is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from .chat_completions import CHAT_COMPLETIONS
from .messages import MESSAGES
from .provider_options import ProviderOptions, Thinking
from .responses import RESPONSES
from .rules import ProtocolRules, Role

__all__ = [
    "CHAT_COMPLETIONS",
    "MESSAGES",
    "PROTOCOL_RULES",
    "RESPONSES",
    "ProtocolName",
    "ProtocolRules",
    "ProviderOptions",
    "Role",
    "Thinking",
]

ProtocolName = Literal["chat_completions", "anthropic", "responses"]
"""The protocol that a provider speaks: OpenAI's chat completions, Anthropic's Messages, or OpenAI's Responses."""

PROTOCOL_RULES: Final[Mapping[ProtocolName, ProtocolRules]] = MappingProxyType(
    {"chat_completions": CHAT_COMPLETIONS, "anthropic": MESSAGES, "responses": RESPONSES}
)
"""Every protocol, by its name in the providers file."""
