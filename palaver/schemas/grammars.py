"""The parts of JSON Schema that providers take, when a schema says what an answer is to be or what a tool takes.

Sources: "Structured outputs", "JSON Schema limitations", of Anthropic; "Structured outputs", "Supported schemas", of
OpenAI; and the transformations in the SDKs of both.
"""

from __future__ import annotations

import re
from typing import Final

from palaver.late import dataclass

_FORMATS: Final = frozenset((
    "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid",
))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grammar:
    """The part of JSON Schema that a provider takes."""

    whose: str
    keywords: frozenset[str]
    """Keywords beside those that every provider takes."""
    formats: frozenset[str] = _FORMATS
    most_items: int | None = None
    """The highest ``minItems``; None for any."""
    all_required: bool = False
    """True if every property has to be in ``required``."""
    most_optional: int | None = None
    """Properties that may not be required, in the whole schema."""
    most_unions: int | None = None
    """Parts with ``anyOf`` or several types."""
    most_levels: int | None = None
    """Levels of objects."""
    most_values: int | None = None
    """Values in all ``enum``."""
    recursive: bool = False
    """True if references may lead back into themselves."""
    object_at_top: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ToolGrammar:
    """The rules of a provider for the schema of a tool."""

    described: bool = False
    """True if an array has to say what is in it, and an object at the top which properties it has."""
    names: re.Pattern[str] | None = None
    """Matches the names that arguments may have; None for any."""


EVERYWHERE: Final = frozenset((
    "type", "title", "description", "enum", "const", "properties", "required", "additionalProperties", "items",
    "$defs", "definitions", "pattern", "format", "minItems",
))  # fmt: skip
"""Keywords that all take; references and ``anyOf`` are looked at before."""
CLAUDE: Final = Grammar(
    whose="Claude",
    keywords=frozenset(("default",)),
    formats=_FORMATS | {"uri"},
    most_items=1,
    most_optional=24,
    most_unions=16,
)
STRICT: Final = Grammar(
    whose="a model that is held to its schema (strict)",
    keywords=frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "maxItems")),
    all_required=True,
    most_levels=10,
    most_values=1000,
    recursive=True,
    object_at_top=True,
)
