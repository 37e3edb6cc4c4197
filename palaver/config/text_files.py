"""Text in files that people write, by whatever program."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Final

_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def text_in(data: bytes) -> str:
    """Return the text of a file: UTF-8, whatever this system's encoding is, or UTF-16 if a mark at its beginning says
    so. Excel and PowerShell write such marks; they are no part of the text. Lines end with a line feed.

    Raises:
        UnicodeDecodeError: it is neither.
    """
    text = data.decode("utf-16") if data.startswith(_UTF_16) else data.decode("utf-8-sig")
    return text.replace("\r\n", "\n")


def read_text_file(path: str | Path) -> str:
    """Return the text of the file at ``path``.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is no text.
    """
    return text_in(Path(path).read_bytes())
