"""OpenHands' agent-server as a dialect: what its client sends and reads, mapped to use cases and back."""

from __future__ import annotations

from .dialect import OPENHANDS

__all__ = ["OPENHANDS"]
