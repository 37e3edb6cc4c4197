"""OpenAI's API as a dialect: Responses, in the background too, conversations and chat completions, as runs."""

from __future__ import annotations

from .dialect import OPENAI

__all__ = ["OPENAI"]
