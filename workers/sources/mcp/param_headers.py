"""Parameters of a tool that a request repeats as headers, for who routes it: ``x-mcp-header`` in a schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from .wire import header_value

ParamHeaders = Mapping[str, tuple[str, ...]]
"""The place of a parameter in the arguments, by the name of its header."""
_MARK: Final = "x-mcp-header"
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_KINDS: Final = ("string", "integer", "boolean")


def param_headers_of(schema: Mapping[str, Any]) -> ParamHeaders:
    """The headers that a schema asks for.

    Raises:
        ValueError: one that cannot be.
    """
    found: dict[str, tuple[str, ...]] = {}
    _gather(schema, (), found)
    if _marks(schema) != len(found):
        raise ValueError(f"its {_MARK} is where no argument can be found for sure")
    return found


def values_of(headers: ParamHeaders, arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers for these arguments; one that is not there or null has none."""
    values = {}
    for name, place in headers.items():
        value: Any = arguments
        for part in place:
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, str | int):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            values[f"Mcp-Param-{name}"] = header_value(text)
    return values


def _gather(schema: Mapping[str, Any], place: tuple[str, ...], found: dict[str, tuple[str, ...]]) -> None:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    for name, inner in properties.items():
        if not isinstance(inner, dict):
            continue
        if (header := inner.get(_MARK)) is not None:
            if not isinstance(header, str) or not _TOKEN.fullmatch(header):
                raise ValueError(f"its {_MARK} is no name of a header")
            if header.lower() in {known.lower() for known in found}:
                raise ValueError(f"two of its parameters have one {_MARK}")
            if inner.get("type") not in _KINDS:
                raise ValueError(f"its {_MARK} is for a parameter that no header carries")
            found[header] = (*place, name)
        _gather(inner, (*place, name), found)


def _marks(value: object, *, names: bool = False) -> int:
    """Count the marks in a schema; in ``properties`` each name is one of a parameter."""
    if isinstance(value, list):
        return sum(map(_marks, value))
    if not isinstance(value, dict):
        return 0
    own = 0 if names or _MARK not in value else 1
    return own + sum(_marks(part, names=not names and name == "properties") for name, part in value.items())
