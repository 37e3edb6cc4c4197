"""The result of a call as a model sees it: texts and images as they are, anything else named by a line of text."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from palaver.errors import ToolError
from palaver.schemas import json_schemas
from palaver.schemas.content import IMAGE_TYPES, ImagePart, Part, TextPart, media_type
from palaver.tools.rendering import render
from palaver.vocabulary.limits import count_exceeded, limit_of

from .offered_tools import visible
from .wire import InvalidAnswer

_SHORT: Final = 200
_LINES: Final = dict.fromkeys(map(ord, " \t\r\n"))
"""Spaces and ends of lines, which base64 may have in it."""


def presented_result(result: Mapping[str, Any], output_schema: dict[str, Any] | None) -> object:
    """The result for the model: a text, a list of texts and images, or what there is in place of these.

    Raises:
        InvalidAnswer: it is none.
        ToolError: the tool says that it failed.
    """
    blocks = result.get("content") or []
    if not isinstance(blocks, list):
        blocks = [blocks]
    failed = result.get("isError") is True
    structured = result.get("structuredContent")
    if structured is not None and output_schema is not None and not failed:
        _require_fit(structured, output_schema)
    parts = _bounded(blocks)
    if structured is not None and not parts and not failed:
        return structured
    if structured is not None and not failed:
        _add_structured(parts, structured)
    if failed:
        raise ToolError(
            "\n".join(part.text for part in parts if isinstance(part, TextPart)) or "it says that it failed"
        )
    if all(isinstance(part, TextPart) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, TextPart))
    return parts


def _require_fit(structured: object, schema: dict[str, Any]) -> None:
    try:
        faults = json_schemas.misfits(schema, structured)
    except json_schemas.Unfit:
        return
    if faults:
        raise InvalidAnswer("its result is not what its own schema says")


def _bounded(blocks: list[Any]) -> list[Part]:
    """The parts of a result: of texts and of images as much as may be, and a line about the rest."""
    most = limit_of("message_parts") - 2
    media = limit_of("tool_result_media")
    parts: list[Part] = []
    for block in blocks[:most]:
        part = _part(block)
        if isinstance(part, ImagePart):
            media -= len(part.url)
            if media < 0:
                count_exceeded("tool_result_media")
                part = TextPart(type="text", text="[an image is left out: together they are too large]")
        parts.append(part)
    if len(blocks) > most:
        count_exceeded("message_parts")
        parts.append(TextPart(type="text", text=f"[cut: the result has {len(blocks):,} parts]"))
    return parts


def _add_structured(parts: list[Part], structured: object) -> None:
    """Put the structured content behind content that says less: a short text beside it is a summary for people. A text
    of the same, which servers send for older clients, or a longer one stands for it."""
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    whole = render(structured)
    if sum(map(len, texts)) >= len(whole) or _says(texts, structured):
        return
    # Servers wrap what is no object.
    inner = structured.get("result") if isinstance(structured, dict) and len(structured) == 1 else None
    if inner is None or not _says(texts, inner):
        parts.append(TextPart(type="text", text=whole))


def _says(texts: list[str], value: object) -> bool:
    """Tell whether texts are a value, or the members of a list."""
    if len(texts) == 1 and _is(texts[0], value):
        return True
    return isinstance(value, list) and len(value) == len(texts) and all(map(_is, texts, value))


def _is(text: str, value: object) -> bool:
    try:
        return text == value or bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


def _part(block: Any) -> Part:
    match block:
        case str():
            return TextPart(type="text", text=block)
        case {"type": "text", "text": str() as text}:
            return TextPart(type="text", text=text)
        case {"type": "image", "data": str() as data, "mimeType": str() as kind}:
            return _image(data, kind)
        case {"type": "resource", "resource": {"text": str() as text}}:
            return TextPart(type="text", text=text)
        case {"type": "resource", "resource": {"blob": str() as data, "mimeType": str() as kind}}:
            return _image(data, kind)
        case {"type": "resource_link", "uri": str() as uri}:
            return TextPart(type="text", text=f"[resource {' '.join(_names(block))}: {visible(uri)[:2048]}]")
        case {"type": str() as kind}:
            return TextPart(type="text", text=f"[{visible(kind)[:40]} is left out: it is for no model here]")
    return TextPart(type="text", text="[a part is left out: its type is not known]")


def _names(block: Mapping[str, Any]) -> Iterator[str]:
    for field in ("name", "description"):
        if isinstance(value := block.get(field), str):
            yield visible(value)[:_SHORT]


def _image(data: str, kind: str) -> Part:
    if media_type(kind) not in IMAGE_TYPES:
        return TextPart(type="text", text=f"[{visible(kind)[:40]} is left out: {len(data) * 3 // 4:,} bytes]")
    if len(data) > limit_of("tool_result_media"):
        count_exceeded("tool_result_media")
        return TextPart(type="text", text=f"[an image is left out: it has {len(data) * 3 // 4:,} bytes]")
    # Padding that was left out loses nothing, either.
    plain = data.translate(_LINES).rstrip("=")
    try:
        return ImagePart.of(base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True), kind)
    except binascii.Error:
        return TextPart(type="text", text="[an image is left out: it is no base64]")
