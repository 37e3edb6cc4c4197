"""Codes of problems that a feature brings (`palaver.feature.Feature.problems`): why the API refuses a request."""

from __future__ import annotations

from typing import NamedTuple


class ProblemCode(NamedTuple):
    """The answer of the API to a request that it refuses for this reason."""

    status: int
    """The HTTP status."""
    title: str
    full: bool = False
    """True if there are as many of something as there may be: some dialects tell that from other conflicts."""
