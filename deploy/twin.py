"""`python -m deploy.twin`: make the blocking client from the asyncio one.

``palaver/client/aio`` is written by hand. ``palaver/client/sync`` is the same text without ``async`` and ``await``, and
with the blocking names of httpx and contextlib. It is made when Palaver is built or installed (`deploy/wheel.py`), and
again by ``make`` when ``aio`` has changed; it is not in git. This needs the standard library alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).resolve().parent.parent / "palaver" / "client" / "aio"
TWIN: Final = SOURCE.with_name("sync")

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
        '"""The blocking client, made from the asyncio one when Palaver is built: not in git."""',
    ),
)
"""What is said otherwise of a blocking client."""
_TEXT: Final = (
    (r"AsyncGenerator\[(.+), None\]", r"Generator[\1, None, None]"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b(palaver\.client)\.aio\b", r"\1.sync"),
    (r"\b(palaver\.client)\.tasks\b", r"\1.threads"),
    (r"\bAsync([A-Z]\w+)", r"\1"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\ba(close|closing|iter_bytes)\b", r"\1"),
)


def twin(source: Path) -> str:
    """Return the text of the twin of one module."""
    text = source.read_text()
    for said, instead in _DOCS:
        text = text.replace(said, instead)
    for pattern, instead in _TEXT:
        text = re.sub(pattern, instead, text)
    return f"# Made from {source.relative_to(SOURCE.parents[2])}: change that file, not this one.\n{text}"


def twins() -> dict[Path, str]:
    """Return where each twin belongs, and its text."""
    return {TWIN / source.name: twin(source) for source in sorted(SOURCE.glob("*.py"))}


def main() -> None:
    """Write every twin, and remove those of modules that are gone."""
    TWIN.mkdir(exist_ok=True)
    made = twins()
    for path in {*TWIN.glob("*.py")} - made.keys():
        path.unlink()
    for path, text in made.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
