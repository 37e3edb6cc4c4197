"""The tools that a server offers, as far as they are fit for a model: bounded, without hidden text, with a schema that
is one and is whole.

A request repeats some of a tool's parameters as headers, for who routes it: ``x-mcp-header`` in a schema.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Final

import orjson

from palaver.errors import ErrorClass
from palaver.late import dataclass
from palaver.schemas.mcp_servers import JOINT, marked_name, tool_name
from palaver.schemas.mended_schemas import mended
from palaver.tools import ToolDeclaration
from palaver.vocabulary.limits import count_exceeded, limit_of
from workers.sources.services import at_service, errors_of

from .tables import McpServer, Override
from .wire import header_value

GONE: Final = "This tool is no longer there: calls of it are refused."
_COMMENT: Final = re.compile(r"<!--.*?(-->|\Z)", re.DOTALL)
_SEEN: Final = frozenset({"description", "title", "$comment"})
"""Keywords of a schema whose text is for readers alone."""
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_MARK: Final = "x-mcp-header"
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_CARRIED: Final = ("string", "integer", "boolean")


class UnfitTool(Exception):
    """A tool cannot be taken; says why."""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that is taken."""

    name: str
    """The server's name for it."""
    declaration: ToolDeclaration
    digest: str
    output_schema: dict[str, Any] | None
    headers: Mapping[str, tuple[str, ...]]
    """The parameters that are headers as well: the place in the arguments, by the name of the header."""
    errors: Mapping[str, ErrorClass]
    """The classes that the file has for the codes of its errors."""
    is_gone: bool = False
    """Its server has it no more, or it changed and that was not accepted: its calls are refused."""

    def gone(self) -> OfferedTool:
        """The same, without what it did."""
        declaration = self.declaration.model_copy(update={"description": GONE, "risky": False})
        return replace(self, declaration=declaration, is_gone=True)

    def headers_with(self, arguments: Mapping[str, Any]) -> dict[str, str]:
        """The headers for these arguments; one that is not there or null has none."""
        values = {}
        for name, place in self.headers.items():
            value: Any = arguments
            for part in place:
                value = value.get(part) if isinstance(value, dict) else None
            if isinstance(value, str | int):
                text = str(value).lower() if isinstance(value, bool) else str(value)
                values[f"Mcp-Param-{name}"] = header_value(text)
        return values


def offers_of(label: str, section: McpServer, tools: Iterable[object]) -> tuple[list[OfferedTool], list[str]]:
    """The tools that a server of this label has for us, and sentences about those that are left out."""
    offered: dict[str, OfferedTool] = {}
    """By the server's names for them."""
    left_out: list[str] = []
    for tool in tools:
        name = tool.get("name") if isinstance(tool, dict) else None
        if isinstance(name, str) and not allowed(name, section.allow):
            continue
        try:
            offer = _offer(label, section, tool)
        except UnfitTool as why:
            left_out.append(f"{visible(str(name))[:80]!r} is left out: {why}")
            continue
        if offer.name in offered:
            left_out.append(f"{visible(offer.name)[:80]!r} is there twice: the first one is taken")
            continue
        offered[offer.name] = offer
    return _told_apart(label, offered.values()), left_out


def _told_apart(label: str, offers: Iterable[OfferedTool]) -> list[OfferedTool]:
    """Give those a suffix whose names would be one, such as ``a.b`` and ``a/b``, but for the one that has that name
    itself. It depends on nothing but the server's name for it: not on their order."""
    offers = list(offers)
    counted = Counter(offer.declaration.name for offer in offers)
    return [
        offer
        if counted[name := offer.declaration.name] == 1 or name == f"{label}{JOINT}{offer.name}"
        else replace(offer, declaration=offer.declaration.model_copy(update={"name": marked_name(label, offer.name)}))
        for offer in offers
    ]


def allowed(name: str, patterns: Iterable[str] | None) -> bool:
    """Tell whether a tool of this name is one of those that are taken."""
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)


def _offer(label: str, section: McpServer, tool: object) -> OfferedTool:
    if not isinstance(tool, dict) or not isinstance(name := tool.get("name"), str) or not 0 < len(name) <= 128:
        raise UnfitTool("it has no name of 1 to 128 characters")
    if len(orjson.dumps(tool)) > limit_of("mcp_definition"):
        count_exceeded("mcp_definition")
        raise UnfitTool(f"its definition is longer than {limit_of('mcp_definition'):,} bytes")
    if _depth(tool) > limit_of("mcp_depth"):
        count_exceeded("mcp_depth")
        raise UnfitTool(f"its definition is nested deeper than {limit_of('mcp_depth')} levels")
    schema = _schema(tool.get("inputSchema"))
    description = tool.get("description")
    if description is not None and not isinstance(description, str):
        raise UnfitTool("its description is no text")
    digest = digest_of(tool)
    if section.pin and section.pins.get(name) != digest:
        known = "it changed since it was accepted" if name in section.pins else "it was not accepted"
        raise UnfitTool(f"{known}: its digest is {digest}")
    override = section.tools.get(name, Override())
    read_only, destructive, idempotent = _hints(section, tool.get("annotations"))
    risky = next((word for word in (override.risky, section.risky) if word is not None), destructive and not read_only)
    declaration = ToolDeclaration(
        name=tool_name(label, name),
        description=visible(description or ""),
        parameters=schema,
        idempotent=override.idempotent if override.idempotent is not None else read_only or idempotent,
        risky=risky,
        timeout=override.timeout or section.timeout,
        max_result=override.max_result or section.max_result,
    )
    declaration = at_service(declaration, override, section, f"mcp.{label}")
    output = tool.get("outputSchema")
    headers, errors = _headers_of(schema), errors_of(override, section)
    return OfferedTool(name, declaration, digest, output if isinstance(output, dict) else None, headers, errors)


def _hints(section: McpServer, annotations: object) -> tuple[bool, bool, bool]:
    """Whether the tool only reads, destroys, and may be called again: by the server's word where that counts."""
    if not section.trusted or not isinstance(annotations, dict):
        return False, True, False
    return (
        annotations.get("readOnlyHint") is True,
        annotations.get("destructiveHint") is not False,
        annotations.get("idempotentHint") is True,
    )


def digest_of(tool: Mapping[str, Any]) -> str:
    """The digest of all that a model is told of a tool, and of what the server says that it does."""
    told = {field: tool.get(field) for field in ("name", "description", "inputSchema", "annotations")}
    return hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def visible(text: str) -> str:
    """``text`` without what a reader does not see and a model does."""
    text = _COMMENT.sub("", text) if "<!--" in text else text
    return text if text.isascii() and text.isprintable() else "".join(filter(_is_seen, text))


def _is_seen(char: str) -> bool:
    return char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Co", "Cs")


def _is_valid(schema: dict[str, Any]) -> bool:
    import jsonschema_rs

    try:
        return jsonschema_rs.meta.is_valid(schema)
    except Exception:
        # A dialect that is not known here.
        return False


def _schema(schema: object) -> dict[str, Any]:
    if schema is None:
        return {"type": "object", "properties": {}}
    if not isinstance(schema, dict):
        raise UnfitTool("its parameters are no object")
    given: dict[str, Any] = schema
    if _refers_elsewhere(given):
        raise UnfitTool("its schema refers to another document")
    if not _is_valid(given):
        given = mended(given)
        if "//json-schema.org/" in str(given.get("$schema")):
            del given["$schema"]
    kinds = given.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise UnfitTool("its parameters are no object")
    given = {"type": "object", **given, **({"type": "object"} if kinds != "object" else {})}
    if not _is_valid(given):
        raise UnfitTool("its schema is no JSON schema")
    return {name: _readable(value) if name not in _SEEN else _shown(value) for name, value in given.items()}


def _refers_elsewhere(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_refers_elsewhere, value))
    if not isinstance(value, dict):
        return False
    references = (value[keyword] for keyword in _REFERENCES if keyword in value)
    if any(isinstance(where, str) and not where.startswith("#") for where in references):
        return True
    return any(map(_refers_elsewhere, value.values()))


def _readable(value: Any) -> Any:
    """A schema without hidden text where only readers look."""
    if isinstance(value, list):
        return [_readable(item) for item in value]
    if isinstance(value, dict):
        return {name: _shown(part) if name in _SEEN else _readable(part) for name, part in value.items()}
    return value


def _shown(value: Any) -> Any:
    return visible(value) if isinstance(value, str) else _readable(value)


def _depth(value: object) -> int:
    """The levels of objects and lists; JSON is not read deeper than a thousand."""
    deepest, left = 0, [(value, 1)]
    while left:
        inner, level = left.pop()
        deepest = max(deepest, level)
        if isinstance(inner, dict):
            left.extend((part, level + 1) for part in inner.values())
        elif isinstance(inner, list):
            left.extend((part, level + 1) for part in inner)
    return deepest


def _headers_of(schema: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
    """The headers that a schema asks for.

    Raises:
        UnfitTool: one that cannot be.
    """
    found: dict[str, tuple[str, ...]] = {}
    _gather_headers(schema, (), found)
    if _count_marks(schema) != len(found):
        raise UnfitTool(f"its {_MARK} is where no argument can be found for sure")
    return found


def _gather_headers(schema: Mapping[str, Any], place: tuple[str, ...], found: dict[str, tuple[str, ...]]) -> None:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    for name, inner in properties.items():
        if not isinstance(inner, dict):
            continue
        if (header := inner.get(_MARK)) is not None:
            if not isinstance(header, str) or not _HEADER.fullmatch(header):
                raise UnfitTool(f"its {_MARK} is no name of a header")
            if header.lower() in {known.lower() for known in found}:
                raise UnfitTool(f"two of its parameters have one {_MARK}")
            if inner.get("type") not in _CARRIED:
                raise UnfitTool(f"its {_MARK} is for a parameter that no header carries")
            found[header] = (*place, name)
        _gather_headers(inner, (*place, name), found)


def _count_marks(value: object, *, names: bool = False) -> int:
    """Count the marks in a schema; in ``properties`` each name is one of a parameter."""
    if isinstance(value, list):
        return sum(map(_count_marks, value))
    if not isinstance(value, dict):
        return 0
    own = 0 if names or _MARK not in value else 1
    return own + sum(_count_marks(part, names=not names and name == "properties") for name, part in value.items())
