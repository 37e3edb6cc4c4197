"""A run as clients of another protocol have been shown it: for the state machines of dialects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Content = str | Sequence[Mapping[str, Any]]
"""The content of a message, as events have it."""


def text_in(content: Content) -> str:
    """Return the text of a message, without what is not text."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")
