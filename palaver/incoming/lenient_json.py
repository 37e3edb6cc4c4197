"""JSON as servers write it, made JSON that every parser takes; what is right stays as it came, byte for byte.

Mended are: a half of a character (``\\ud83d`` alone, which RFC 8259 section 8.2 lets stand), ``NaN`` and its like,
characters of control within a text, and bytes that are no UTF-8. The work is linear, and none of it is a call of Python
for each character.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

_LONGEST: Final = 512 * 1024
"""Bytes of a piece that is mended, at most: it takes some 30 ms."""
_MOST: Final = 1024
"""Halves of each kind that are mended in one piece. Real ones have a few."""
_MOST_TEXTS: Final = 16 * 1024
"""Texts of a piece in which ``NaN`` and characters of control are looked for."""
_CONTROLS: Final = bytes(byte if byte > 31 or byte in b"\t\n\r" else 32 for byte in range(256))
"""A space in place of each character of control but those that end lines."""
_ESCAPES: Final = ((b"\\\\", b"\x00"), (b'\\"', b"\x01"))
"""What may not be taken for the beginning of an escape or the end of a text, and what stands for it meanwhile."""
_LINES: Final = ((b"\t", b"\\t"), (b"\n", b"\\n"), (b"\r", b"\\r"))
_NO_NUMBER: Final = re.compile(rb"-?\b(?:NaN|Infinity)\b")
_SECOND: Final = rb"[dD][c-fC-F][0-9a-fA-F]{2}"
_FIRST_ALONE: Final = rb"\\u[dD]%b(?=[0-9a-fA-F]{2}(?!\\u" + _SECOND + rb"))"
_SECOND_ALONE: Final = rb"\\u(?=" + _SECOND + rb")(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u)"
# A half U+D8XX and its like is written as U+10F8XX and its like.
_KEPT: Final = (
    (re.compile(_SECOND_ALONE), rb"\\udbff\\u"),
    *(
        (re.compile(_FIRST_ALONE % digit), rb"\\udbfe\\ud" + low)
        for digit, low in ((b"8", b"c"), (b"9", b"d"), (b"[aA]", b"e"), (b"[bB]", b"f"))
    ),
)
_IN_UTF8: Final = re.compile(rb"\xed(?=[\xa0-\xbf][\x80-\xbf])")
_FIRSTS, _SECONDS = "[\U0010f800-\U0010fbff]", "[\U0010fc00-\U0010ffff]"
_ALONE: Final = re.compile(f"{_FIRSTS}(?!{_SECONDS})|(?<!{_FIRSTS}){_SECONDS}")
_PAIR: Final = re.compile(_FIRSTS + _SECONDS)
_HALF: Final = re.compile("[\U0010f800-\U0010ffff]")
_ESCAPED_HALVES: Final = re.compile(r"(?:\\udbf[ef]\\ud[c-f][0-9a-fA-F]{2})+")
_UNKNOWN: Final = "\ufffd"


def read_json(data: bytes) -> Any:
    """The value of ``data``, in which a half of a character is U+FFFD.

    Raises:
        ValueError: it is no JSON, however it is mended.
    """
    try:
        return orjson.loads(data)
    except ValueError:
        value = orjson.loads(mended(data))
        return orjson.loads(joined(orjson.dumps(value).decode()))


def mended(data: bytes) -> bytes:
    """``data`` as JSON that every parser takes, if it can be. Each half of a character is one of its own, from U+10F800
    to U+10FFFF, which are for private use: another piece of the text may have the other half. Once the pieces are
    together, `joined` makes characters of them."""
    if len(data) > _LONGEST:
        return data
    data = data.translate(_CONTROLS)
    try:
        data.decode()
    except UnicodeDecodeError:
        data = _IN_UTF8.sub(b"\xf4\x8f", data, count=_MOST).decode("utf-8", "replace").encode()
    for escape, meanwhile in _ESCAPES:
        data = data.replace(escape, meanwhile)
    for half, kept in _KEPT:
        data = half.sub(kept, data, count=_MOST)
    parts = data.split(b'"')
    if len(parts) <= 2 * _MOST_TEXTS:
        parts[::2] = _NO_NUMBER.sub(b"null", b'"'.join(parts[::2])).split(b'"')
        inside = b'"'.join(parts[1::2])
        for control, escape in _LINES:
            inside = inside.replace(control, escape)
        parts[1::2] = inside.split(b'"') if inside or len(parts) > 1 else []
        data = b'"'.join(parts)
    for escape, meanwhile in _ESCAPES:
        data = data.replace(meanwhile, escape)
    return data


def joined(text: str) -> str:
    """``text`` with a character for two halves of it that stand together, and U+FFFD for one that is alone."""
    if text.isascii() or not _HALF.search(text):
        return text
    return _PAIR.sub(_character, _ALONE.sub(_UNKNOWN, text))


def joined_json(text: str) -> str:
    """JSON ``text`` with whole characters: as `joined`, also where a half is written as an escape."""
    return joined(_ESCAPED_HALVES.sub(lambda halves: orjson.loads(f'"{halves[0]}"'), text))


def _character(pair: re.Match[str]) -> str:
    first, second = ord(pair[0][0]) - 0x10F800, ord(pair[0][1]) - 0x10FC00
    return chr(0x10000 + (first << 10) + second)


class Halves:
    """Joins a text that comes in pieces: the first half of a character waits for what follows it."""

    def __init__(self) -> None:
        self._first = ""

    def add(self, piece: str) -> str:
        """The part of the text that is known with ``piece``."""
        if not piece:
            return ""
        piece = self._first + piece
        self._first = piece[-1] if "\U0010f800" <= piece[-1] < "\U0010fc00" else ""
        return joined(piece[: len(piece) - len(self._first)])

    def end(self) -> str:
        """The rest of it."""
        rest, self._first = joined(self._first), ""
        return rest
