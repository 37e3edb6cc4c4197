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
from ..verbatim import elements, members

log = logging.getLogger("palaver.workers.protocols.messages.blocks")

OPENINGS: Final = {role: b'{"role":"%b","content":[' % role.encode() for role in ("user", "assistant")}
CLOSING: Final = b"]}"
BLOCKS: Final = "blocks"
"""The field with everything that is sent back unchanged, in its order: a block as it came, the id of a call, or how
many characters of the text are there."""
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


def text(said: str) -> list[bytes]:
    """The block of a text; none if there is nothing to see."""
    return [_text(said)] if said.strip() else []


def call(asked: ToolCall, place: int) -> bytes:
    """A call as the model wrote it, but for what is refused: no arguments in place of those that are no JSON object,
    and a name that can be one."""
    name = _NOT_IN_NAMES.sub("_", asked.name)[:_LONGEST] or "unknown"
    head = {"type": "tool_use", "id": _id(asked.id, place), "name": name}
    return orjson.dumps(head | {"input": _arguments(asked.arguments)})


def result(answer: Message, place: int) -> bytes:
    """Return the block of a tool's answer. Its failure is noted last, where breakpoints look for it."""
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(answer.call_id or "", place)}
    if isinstance(answer.content, str):
        # A failure has to say something.
        block["content"] = answer.content or (_NOTHING if answer.is_error else "")
    else:
        block["content"] = [orjson.Fragment(each) for each in content(answer)]
    if answer.is_error:
        block["is_error"] = True
    return orjson.dumps(block)


def restored(fields: str, said: str, calls: Mapping[str, bytes]) -> list[bytes]:
    """Return the blocks that ``Blocks.whole`` wrote, with the text and the calls in their places among them. Whatever
    would be refused is left out: what cannot be read, a thought without its signature, and thoughts that are last."""
    try:
        return _restored(fields, said, calls)
    except (ValueError, KeyError, AttributeError):
        log.warning("what a provider wants back unchanged cannot be read and is left out")
        return [*text(said), *calls.values()]


def _restored(fields: str, said: str, calls: Mapping[str, bytes]) -> list[bytes]:
    found: list[bytes] = []
    thoughts: set[bytes] = set()
    left, open_calls = said, dict(calls)
    for each in elements(members(fields)[BLOCKS]):
        if each.startswith("{"):
            block = orjson.loads(each)
            if block["type"] in _THOUGHTS:
                thoughts.add(each.encode())
            if block["type"] != "thinking" or block.get("signature"):
                found.append(each.encode())
        elif each.startswith('"'):
            if asked := open_calls.pop(orjson.loads(each), None):
                found.append(asked)
        else:
            found += text(left[: int(each)])
            left = left[int(each) :]
    # Calls are last: results have to follow.
    found += [*text(left), *open_calls.values()]
    while found and found[-1] in thoughts:
        found.pop()
    return found


def words(said: Any) -> str:
    """Return a result's content, or blocks, in words."""
    if isinstance(said, str):
        return said
    return "\n".join(block["text"] if block["type"] == "text" else f"[{block['type']}]" for block in said)


def _arguments(given: str) -> Any:
    """The JSON as it came, as far as it is JSON: ``NaN`` and its like are read from a model, and sent to none."""
    found = readable(given)
    try:
        orjson.loads(given)
    except ValueError:
        return found or {}
    return {} if found is None else orjson.Fragment(given.strip())


def _id(given: str, place: int) -> str:
    """An id that no other call of the conversation has: they are refused if they come twice."""
    return given if given.startswith(_MADE_HERE) else id_elsewhere(given, place)


def _text(said: str) -> bytes:
    return b'{"type":"text","text":%b}' % orjson.dumps(said)


def _part(part: Part) -> Sequence[bytes]:
    """A part. One that is refused at submit may be from a tool, or from when another provider was asked."""
    if PROTOCOL_RULES["anthropic"].lacks("user", part):
        return text(text_of((part,)))
    match part:
        case ImagePart(url=url):
            return [orjson.dumps({"type": "image", "source": _source(url)})]
        case FilePart(url=url, name=name):
            block = {"type": "document", "source": _source(url)}
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
