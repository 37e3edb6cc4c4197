"""Wraps the prose of pages at 120 characters: ``python -m docs.wrap README.md docs/how-to/*.md``.

Paragraphs and list items with a longer line are filled anew; code, tables and headings stay as they are.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

WIDTH: Final = 120
_ITEM: Final = re.compile(r"( *)([-*+]|\d+[.)]) +")
_VERBATIM: Final = re.compile(r"\s*(?:\||#|<|>|!!!|\[\w+\]:)|\s*$|    (?! *(?:[-*+]|\d+[.)]) )")
"""Tables, headings, HTML, quotations, admonitions, definitions of links, empty lines and indented code."""
_MARK: Final = re.compile(r"[-+*>]|#+|\d+[.)]")
"""What would begin a list or a heading if it began a line."""
_SPAN: Final = re.compile(r"`[^`]*`")


def wrapped(text: str) -> str:
    """The page with no line of prose longer than `WIDTH`."""
    return "".join(
        f"{line}\n" for block, prose in _blocks(text.splitlines()) for line in (_filled(block) if prose else block)
    )


def _blocks(lines: list[str]) -> Iterator[tuple[list[str], bool]]:
    """Paragraphs and list items, which are prose, and every other line by itself, which is not."""
    block: list[str] = []
    fence = ""
    for line in lines:
        opening = re.match(r"\s*(```+|~~~+)", line)
        if fence or opening or (_VERBATIM.match(line) and not (block and _continues(block, line))):
            if block:
                yield block, True
                block = []
            if opening:
                fence = "" if fence and opening[1].startswith(fence) else fence or opening[1]
            yield [line], False
            continue
        if block and _ITEM.match(line):
            yield block, True
            block = []
        block.append(line)
    if block:
        yield block, True


def _continues(block: list[str], line: str) -> bool:
    """Whether a line that is indented far belongs to the list item above it."""
    item = _ITEM.match(block[0])
    return item is not None and line.startswith(" " * item.end()) and bool(line.strip())


def _filled(block: list[str]) -> list[str]:
    if all(len(line) <= WIDTH for line in block):
        return block
    item = _ITEM.match(block[0])
    indent = " " * (item.end() if item else len(block[0]) - len(block[0].lstrip()))
    first = block[0][: item.end()] if item else indent
    words = _words(" ".join([block[0][len(first) :], *block[1:]]))
    lines = [first + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) > WIDTH and not _MARK.fullmatch(word):
            lines.append(indent + word)
        else:
            lines[-1] += " " + word
    return lines


def _words(text: str) -> list[str]:
    """Where a line may be broken: at blanks, but not within `code`."""
    held = _SPAN.sub(lambda span: re.sub(r"\s+", "\0", span[0]), text)
    return [word.replace("\0", " ") for word in held.split()]


def main() -> None:
    """Wrap the files that the command names."""
    parser = argparse.ArgumentParser(prog="python -m docs.wrap", description=f"Wrap prose at {WIDTH} characters.")
    parser.add_argument("page", nargs="+", type=Path)
    for page in parser.parse_args().page:
        page.write_text(wrapped(page.read_text()))


if __name__ == "__main__":
    main()
