"""Make the blocking client from the asyncio one: ``palaver/client/aio`` is written by hand, ``sync`` is its twin.

The twin is the same text without ``async`` and ``await``, and with the blocking names of httpx and contextlib.
``concurrency.py``, where tasks and threads differ, is written by hand on both sides.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parent.parent / "palaver" / "client" / "aio"
TWIN: Final = SOURCE.with_name("sync")
BY_HAND: Final = frozenset({"concurrency.py"})

_DOCS: Final = (
    (
        "Palaver's API on asyncio; the methods, arguments and errors are those of `Palaver`, awaited.",
        "Palaver's API, blocking. Threads may share one. Functions of client tools are called in threads.",
    ),
    (
        "    Functions of client tools are awaited, those that are no coroutines run in threads.\n"
        "    Close an iterator that you leave early (``contextlib.aclosing``).\n",
        "",
    ),
    ('"""The asyncio client."""', '"""The blocking client."""'),
    (
        '"""The asyncio client, written by hand: `palaver.client.sync` is made from it."""',
        '"""The blocking client, generated: `make twin` makes it from `palaver.client.aio`."""',
    ),
)
"""What is said otherwise of a blocking client."""
_TEXT: Final = (
    (r"AsyncGenerator\[(.+), None\]", r"Generator[\1, None, None]"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b(palaver\.client)\.aio\b", r"\1.sync"),
    (r"\bAsync([A-Z]\w+)", r"\1"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\ba(close|closing|iter_bytes)\b", r"\1"),
)


def twin(source: Path) -> str:
    """The text of the twin of one module."""
    text = source.read_text()
    for said, instead in _DOCS:
        text = text.replace(said, instead)
    for pattern, instead in _TEXT:
        text = re.sub(pattern, instead, text)
    whence = source.relative_to(SOURCE.parents[2])
    return _formatted(f"# Generated from {whence} by `make twin`: change that file, not this one.\n{text}")


def twins() -> Iterator[tuple[Path, str]]:
    """Where each twin belongs, and its text."""
    for source in sorted(SOURCE.glob("*.py")):
        if source.name not in BY_HAND:
            yield TWIN / source.name, twin(source)


def _formatted(text: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--select", "I,UP028", "--fix", "--unsafe-fixes", "--quiet"], ["format"]):
        name = ["--stdin-filename", str(TWIN / "twin.py"), "-"]
        text = subprocess.run([*ruff, *command, *name], input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    """Write every twin."""
    for path, text in twins():
        path.write_text(text)


if __name__ == "__main__":
    main()
