"""OpenAI's API as a dialect: Responses, in the background too, conversations and chat completions, as runs."""

from __future__ import annotations

from . import chat, conversations, models, responses
from .dialect import OPENAI

__all__ = ["OPENAI", "chat", "conversations", "models", "responses"]
