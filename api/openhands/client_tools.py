"""Tools that a client brings along and carries out by itself, when it sees the event of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import orjson
from pydantic import Field

from palaver.errors import Fault, Refused
from palaver.schemas.actions import ClientTool
from palaver.vocabulary.limits import KIB

from .fields import Known, refusing

_ACKNOWLEDGEMENT: Final = "The call has been handed to the client, which carries it out. Nothing more is heard of it."
_TOGETHER: Final = 256 * KIB
"""Bytes of all of them as JSON: clients are told them with each state, in a frame."""
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
}


class GivenClientTool(Known):
    """A tool of the client."""

    name: str
    description: str
    parameters: dict[str, Any] = Field(default={"type": "object", "properties": {}})


def client_tools_of(given: Sequence[GivenClientTool]) -> tuple[ClientTool, ...]:
    """These tools here: their calls are acknowledged at once.

    Raises:
        Refused: what of them cannot be taken.
    """
    made = []
    for index, each in enumerate(given):
        with refusing(f"/client_tools/{index}"):
            made.append(ClientTool(**dict(each), acknowledgement=_ACKNOWLEDGEMENT))
    if len(told_of(made)) != len(made):
        why = f"are too large together: at most {_TOGETHER} bytes as JSON"
        raise Refused.of_faults([Fault("/client_tools", "unsupported_option", why)])
    return tuple(made)


def told_of(tools: Sequence[ClientTool]) -> tuple[ClientTool, ...]:
    """Those that clients are told of. Another dialect may have taken more than there is room for."""
    sizes = accumulate(len(orjson.dumps(described(tool))) for tool in tools)
    return tuple(tool for tool, size in zip(tools, sizes, strict=True) if size <= _TOGETHER)


def described(tool: ClientTool) -> dict[str, Any]:
    """A tool as clients read it: who attaches learns its actions from that."""
    return tool.model_dump(include={"name", "description", "parameters"})


def client_action(tool: ClientTool, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """A call of such a tool in the kind that its client has made for it; None if that would not take the arguments.

    Clients know the properties of an object with their types, and nothing else of a schema: what it allows besides
    would break them.
    """
    fields = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", [])
    fits = "kind" not in fields and all(name in arguments for name in required)
    for name, value in arguments.items():
        left_out = value is None and name not in required
        fits = fits and name in fields and (left_out or _takes(fields[name], value))
    return {"kind": f"ClientAction_{tool.name}", **arguments} if fits else None


def _takes(schema: Any, value: Any) -> bool:
    """Whether a client takes the value for its type."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        kind = others[0] if len(others) == 1 else None
    if kind == "array":
        items = schema.get("items", {})
        return isinstance(value, list) and all(_takes(items, each) for each in value)
    if not isinstance(kind, str) or kind not in _TYPES:
        return True
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
