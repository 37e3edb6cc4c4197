"""Content that clients send into a conversation, in our words: messages, tools of their own, secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import BeforeValidator, Field

from api.kit.lenient import LenientModel, refusing
from palaver.errors import FieldError, Refused
from palaver.schemas.actions import ClientTool
from palaver.schemas.content import ImagePart, Part, TextPart
from palaver.schemas.fields import SecretText
from palaver.schemas.models import Message
from palaver.tools import ToolDeclaration
from palaver.vocabulary.limits import KIB


class TextContent(LenientModel):
    """Text. Caching is the provider's setting here."""

    type: Literal["text"] = "text"
    text: str


class ImageContent(LenientModel):
    """Images, each by its address."""

    type: Literal["image"]
    image_urls: list[str]


OpenHandsContent = str | list[Annotated[TextContent | ImageContent, Field(discriminator="type")]]


def user_message(content: OpenHandsContent) -> Message:
    """Return a message of the user.

    Raises:
        Refused: the parts of it that cannot be taken.
    """
    if isinstance(content, str):
        return Message(role="user", content=content)
    parts: list[Part] = []
    with refusing("/content"):
        for part in content:
            if isinstance(part, TextContent):
                parts.append(TextPart(type="text", text=part.text))
            else:
                parts += [ImagePart(type="image", url=url) for url in part.image_urls]
        return Message(role="user", content=tuple(parts))


def shown(content: str | Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the content of a message in the log, as an event has it."""
    return [_text(content)] if isinstance(content, str) else [_part(part) for part in content]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    match part:
        case {"type": "image", "url": url}:
            return {"type": "image", "image_urls": [url]}
        case {"type": "file"}:
            # OpenHands has no place for files in a message.
            return _text(f"[file {part.get('name') or 'without a name'}]")
        case _:
            return _text(str(part.get("text", "")))


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


_ACKNOWLEDGEMENT: Final = "The call has been handed to the client, which carries it out. Nothing more is heard of it."
_TOGETHER: Final = 256 * KIB
"""Bytes of all client tools as JSON: clients get them with each state, in a frame."""
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
}


class OpenHandsClientTool(LenientModel):
    """A tool of the client."""

    name: str
    description: str
    parameters: dict[str, Any] = Field(default={"type": "object", "properties": {}})


def client_tools_of(tools: Sequence[OpenHandsClientTool]) -> tuple[ClientTool, ...]:
    """Return these tools as ours: their calls are acknowledged at once.

    Raises:
        Refused: everything of them that cannot be taken.
    """
    made = []
    for index, tool in enumerate(tools):
        with refusing(f"/client_tools/{index}"):
            made.append(ClientTool(**dict(tool), acknowledgement=_ACKNOWLEDGEMENT))
    if len(announced(made)) != len(made):
        why = f"are too large together: at most {_TOGETHER} bytes as JSON"
        raise Refused.of_faults([FieldError("/client_tools", "unsupported_option", why)])
    return tuple(made)


def announced(tools: Sequence[ClientTool]) -> tuple[ClientTool, ...]:
    """Return the tools that clients are shown. Another dialect may have taken more than there is room for."""
    sizes = accumulate(len(orjson.dumps(described(tool))) for tool in tools)
    return tuple(tool for tool, size in zip(tools, sizes, strict=True) if size <= _TOGETHER)


def described(tool: ClientTool) -> dict[str, Any]:
    """Return a tool as clients read it: a client that attaches learns its actions from that."""
    return tool.model_dump(include={"name", "description", "parameters"})


_OWN_TOOLS: Final = {"finish": "Finish", "think": "Think"}
"""The tools that clients have a kind of their own for, by its beginning."""


def agents_tool(name: str, declared: ToolDeclaration | None) -> dict[str, Any]:
    """Return a tool of an agent in a kind that all clients know. ``declared`` is None where no worker has it now."""
    description = declared.description if declared else ""
    if name in _OWN_TOOLS:
        return _tool(name, description, f"{_OWN_TOOLS[name]}Tool", _OWN_TOOLS[name])
    return _of_server(name, description, declared.parameters if declared else {"type": "object", "properties": {}})


def clients_tool(tool: ClientTool, *, newer: bool) -> dict[str, Any]:
    """Return a tool of the client: for the ``newer`` one in the kind that it has made for it."""
    if not newer:
        return _of_server(tool.name, tool.description, tool.parameters)
    made = _tool(tool.name, tool.description, "ClientTool", "ClientTool", f"ClientAction_{tool.name}")
    return made | {"client_tool_name": tool.name, "input_schema": tool.parameters}


def _of_server(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    mcp_tool = {"name": name, "description": description, "inputSchema": parameters}
    return _tool(name, description, "MCPToolDefinition", "MCPTool") | {"mcp_tool": mcp_tool}


def _tool(name: str, description: str, kind: str, of: str, action: str | None = None) -> dict[str, Any]:
    types = {"action_type": action or f"{of}Action", "observation_type": f"{of}Observation"}
    return {"kind": kind, "title": name, "description": description, **types}


def client_action(tool: ClientTool, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a call of such a tool in the kind that its client has made for it; None if that kind would not take the
    arguments.

    Clients know the properties of an object with their types, and nothing else of a schema: other arguments that it
    allows would break them.
    """
    fields = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", [])
    fits = "kind" not in fields and all(name in arguments for name in required)
    for name, value in arguments.items():
        left_out = value is None and name not in required
        fits = fits and name in fields and (left_out or _takes(fields[name], value))
    return {"kind": f"ClientAction_{tool.name}", **arguments} if fits else None


def _takes(schema: Any, value: Any) -> bool:
    """Tell whether a client takes the value for its type."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(kind, list):
        others = [name for name in kind if name != "null"]
        kind = others[0] if len(others) == 1 else None
    if kind == "array":
        items = schema.get("items", {})
        return isinstance(value, list) and all(_takes(items, item) for item in value)
    if not isinstance(kind, str) or kind not in _TYPES:
        return True
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


class StaticSecret(LenientModel):
    """A secret by its value. Without one it is removed."""

    kind: Literal["StaticSecret"] = "StaticSecret"
    value: SecretText | None = None


def _value(value: object) -> object:
    match value:
        case {"kind": kind} if kind != "StaticSecret":
            raise ValueError("must be the value itself, or a StaticSecret: nothing is looked up from here")
        case dict():
            return value.get("value")
        case _:
            return value


OpenHandsSecret = Annotated[
    SecretText | None, BeforeValidator(_value, json_schema_input_type=SecretText | StaticSecret)
]
"""A secret as a text, or as an object of a client."""
