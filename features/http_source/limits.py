"""Limits of tools over HTTP. Each group stands behind a limit of the core on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from palaver.vocabulary.limits import MIB, Limit, limit_rows

LIMITS: Final[Mapping[str, Sequence[Limit]]] = MappingProxyType(
    {
        "question_answer": limit_rows(
            "Tools",
            (
                "http_answer",
                "answer of a service that is a tool over HTTP",
                MIB,
                "bytes",
                "cut, and the model is told so",
            ),
        ),
    }
)
