"""What a tenant has of OpenAI's dialect, at an API: tests of the core ask for it."""

from __future__ import annotations

from typing import Final

CAUSES: Final = ("POST /openai/v1/responses",)
