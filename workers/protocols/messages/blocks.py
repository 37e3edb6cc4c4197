"""Blocks of content: what a message is made of. They are kept as JSON, so that a conversation is put together by
joining bytes."""

from __future__ import annotations

import logging
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import orjson

from palaver.schemas.arguments import readable
from palaver.schemas.content import FilePart, ImagePart, Part, inline_data, text_of
from palaver.schemas.models import Message, ToolCall
from palaver.schemas.protocols import PROTOCOL_RULES

from ..calls import id_elsewhere
from ..port import LEFT_OUT
from ..verbatim import elements, members

log = logging.getLogger("palaver.workers.protocols.messages.blocks")

OPENINGS: Final = {role: b'{"role":"%b","content":[' % role.encode() for role in ("user", "assistant")}
CLOSING: Final = b"]}"
BLOCKS: Final = "blocks"
"""The field with everything that is sent back unchanged, in its order: a block as it came, the id of a call, or how
many characters of the text are there, and the sources of that."""
PLAIN: Final = frozenset(("text", "image", "document", "tool_use", "tool_result"))
"""Types of blocks that are written here."""
_THOUGHTS: Final = ("thinking", "redacted_thinking")
_NOTHING: Final = "(empty)"
"""In place of a text without a visible character, which is refused."""
_MADE_HERE: Final = "toolu_"
"""The beginning of an id that Anthropic made."""
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST: Final = 64
"""Characters of a name. 128 are allowed; models of other providers, which may go on with the conversation, take
fewer."""


def written(role: str, blocks: Iterable[bytes]) -> bytes:
    """A message of these blocks, of which there is at least one."""
    return OPENINGS[role] + (b",".join(blocks) or _text(_NOTHING)) + CLOSING


def content(message: Message) -> list[bytes]:
    """The blocks of what a message says."""
    if isinstance(message.content, str):
        return text(message.content)
    return [block for part in message.content for block in _part(part)]


def text(string: str, cited: str = "") -> list[bytes]:
    """The block of a text with the JSON of what it cites, if it does; none if there is nothing to see."""
    if not string.strip():
        return []
    plain = _text(string)
    return [plain[:-1] + b',"citations":%b}' % cited.encode() if cited else plain]


def uncited(raw: str, block: Mapping[str, Any]) -> bytes:
    """The block without the sources of its text."""
    return _text(block["text"]) if "citations" in block else raw.encode()


def call(tool_call: ToolCall, place: int) -> bytes:
    """A call as the model wrote it, but for what is refused: no arguments in place of those that are no JSON object,
    and a name that can be one."""
    name = _NOT_IN_NAMES.sub("_", tool_call.name)[:_LONGEST] or "unknown"
    head = {"type": "tool_use", "id": _id(tool_call.id, place), "name": name}
    return orjson.dumps(head | {"input": _arguments(tool_call.arguments)})


def result(answer: Message, place: int) -> bytes:
    """Return the block of a tool's answer. Its failure is noted last, where breakpoints look for it."""
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(answer.call_id or "", place)}
    if isinstance(answer.content, str):
        # A failure has to say something.
        block["content"] = answer.content or (_NOTHING if answer.is_error else "")
    else:
        block["content"] = [orjson.Fragment(raw) for raw in content(answer)]
    if answer.is_error:
        block["is_error"] = True
    return orjson.dumps(block)


def restored(fields: str, answer_text: str, calls: Mapping[str, bytes]) -> list[bytes]:
    """Return the blocks that ``Blocks.whole`` wrote, with the text and the calls in their places among them. Whatever
    would be refused is left out: what cannot be read, a thought without its signature, and thoughts that are last."""
    try:
        return _restored(fields, answer_text, calls)
    except (ValueError, KeyError, AttributeError):
        log.warning("what a provider wants back unchanged cannot be read and is left out")
        return [*text(answer_text), *calls.values()]


def _restored(fields: str, answer_text: str, calls: Mapping[str, bytes]) -> list[bytes]:
    blocks: list[bytes] = []
    thoughts: set[bytes] = set()
    left, open_calls = answer_text, dict(calls)
    for raw in elements(members(fields)[BLOCKS]):
        if raw.startswith("{"):
            block = orjson.loads(raw)
            if block["type"] in _THOUGHTS:
                thoughts.add(raw.encode())
            if block["type"] != "thinking" or block.get("signature"):
                blocks.append(raw.encode())
        elif raw.startswith('"'):
            if open_call := open_calls.pop(orjson.loads(raw), None):
                blocks.append(open_call)
        else:
            length, cited = elements(raw) if raw.startswith("[") else (raw, "")
            blocks += text(left[: int(length)], cited)
            left = left[int(length) :]
    # Calls are last: results have to follow.
    blocks += [*text(left), *open_calls.values()]
    while blocks and blocks[-1] in thoughts:
        blocks.pop()
    return blocks


def in_words(block: dict[str, Any]) -> dict[str, Any]:
    """Return the block, with texts in place of an image or a document, and of those within it."""
    if block["type"] in ("image", "document"):
        return {"type": "text", "text": LEFT_OUT.format(block.get("title") or block["type"])}
    if block["type"] == "tool_result" and isinstance(block.get("content"), list):
        return {**block, "content": [in_words(part) for part in block["content"]]}
    return block


def words(value: Any) -> str:
    """Return a result's content, or blocks, in words."""
    if isinstance(value, str):
        return value
    return "\n".join(block["text"] if block["type"] == "text" else f"[{block['type']}]" for block in value)


def _arguments(raw: str) -> Any:
    """The JSON as it came, as far as it is JSON: ``NaN`` and its like are read from a model, and sent to none."""
    arguments = readable(raw)
    try:
        orjson.loads(raw)
    except ValueError:
        return arguments or {}
    return {} if arguments is None else orjson.Fragment(raw.strip())


def _id(call_id: str, place: int) -> str:
    """An id that no other call of the conversation has: they are refused if they come twice."""
    return call_id if call_id.startswith(_MADE_HERE) else id_elsewhere(call_id, place)


def _text(string: str) -> bytes:
    return b'{"type":"text","text":%b}' % orjson.dumps(string)


def _part(part: Part) -> Sequence[bytes]:
    """A part. One that is refused at submit may be from a tool, or from when another provider was asked."""
    if PROTOCOL_RULES["anthropic"].lacks("user", part):
        return text(text_of((part,)))
    match part:
        case ImagePart():
            return [orjson.dumps({"type": "image", "source": _source(part.sent_url)})]
        case FilePart(name=name):
            block = {"type": "document", "source": _source(part.sent_url)}
            return [orjson.dumps(block | ({"title": name} if name else {}))]
        case _:
            return text(text_of((part,)))


def _source(url: str) -> dict[str, str]:
    """Return the source of the data: the provider fetches an address. A document of text is text here."""
    if (inline := inline_data(url)) is None:
        return {"type": "url", "url": url}
    kind, in_base64, data = inline
    if kind == "text/plain":
        with suppress(ValueError):
            raw = b64decode(data) if in_base64 else unquote_to_bytes(data)
            return {"type": "text", "media_type": kind, "data": raw.decode("utf-8", "replace")}
    return {"type": "base64", "media_type": kind, "data": data}
