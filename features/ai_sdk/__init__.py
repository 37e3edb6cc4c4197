"""UI message streams as a dialect: pages with ``useChat`` of the AI SDK send, resume and stop runs."""

from __future__ import annotations

from .dialect import AI_SDK

__all__ = ["AI_SDK"]
