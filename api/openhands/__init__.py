"""OpenHands' agent-server as a dialect: what its client sends and reads, mapped to use cases and back."""

from __future__ import annotations

from . import lists  # isort: skip: its paths go before those of one conversation
from . import about, asking, branching, conversations, history, secrets, sockets, steering
from .dialect import OPENHANDS

__all__ = [
    "OPENHANDS",
    "about",
    "asking",
    "branching",
    "conversations",
    "history",
    "lists",
    "secrets",
    "sockets",
    "steering",
]
