"""Pages whose commands are typed: what a page shows as answer, as a pattern for what really comes.

A page writes `run_00…` for an id, `…` for what differs each time (alone in a line: any lines), and some number for a
process. What it says in their place is learned from the answers and put into the commands that follow.
"""

from __future__ import annotations

import ast
import gc
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_VARIES: Final = re.compile(
    r"(?P<id>(?:run|conv)_00…)|(?P<lines>^…\n)|(?P<rest>…)|(?<=process )(?P<number>\d+)", re.MULTILINE
)


def files(*patterns: str) -> list[Path]:
    """Files of the repository, whether they have been added to git yet or not; of these patterns, or all."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return sorted(ROOT / name for name in set(names) if (ROOT / name).exists())


def syntax(path: Path) -> ast.Module:
    """The syntax tree of a module.

    The parser of CPython 3.11 fails ("AST constructor recursion depth mismatch") if it is called again while it works;
    a finalizer does so that prints a traceback. So none runs meanwhile.
    """
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and content of each block of code, in order."""
    return blocks_of(page.read_text())


def blocks_of(text: str) -> list[tuple[str, str]]:
    """The same, of a part of a page."""
    return _BLOCK.findall(text)


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Each command of a console, behind its `$`, with the answer that the page shows."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, answer = part.partition("\n")
        yield command, answer


@dataclass
class Memory:
    """What the page's ids and process numbers really are."""

    meant: dict[str, str] = field(default_factory=dict)

    def typed(self, command: str) -> str:
        """The command as a reader types it."""
        for written, meant in self.meant.items():
            command = re.sub(rf"{re.escape(written)}(?!\w)", meant, command)
        return command

    def matches(self, shown: str, answer: str, *, so_far: bool = False) -> bool:
        """Whether `answer` is what the page shows, or what has come `so_far` begins so. What differs is remembered."""
        pattern, names = _pattern(shown)
        found = re.match(pattern, answer) if so_far else re.fullmatch(pattern, answer)
        if found:
            self.meant.update(zip(names, found.groups(), strict=True))
        return found is not None


def _pattern(shown: str) -> tuple[str, list[str]]:
    """A regular expression, and what the page writes in place of each of its groups."""
    names, pattern, end = [], "", 0
    for found in _VARIES.finditer(shown):
        pattern += _words(shown[end : found.start()])
        end = found.end()
        match found.lastgroup:
            case "lines":
                pattern += r"(?:.*\n)*?"
            case "rest":
                pattern += r".*"
            case kind:
                names.append(found[0])
                # Of an id, just its kind: its shard is any, where there are many.
                pattern += r"(\d+)" if kind == "number" else rf"({found[0].partition('_')[0]}_\w{{28}})"
    return pattern + _words(shown[end:]), names


def _words(shown: str) -> str:
    """Just these words; between two columns of a table are as many blanks as its longest row wants."""
    return re.sub(r"(?:\\ ){2,}", " {2,}", re.escape(shown))
