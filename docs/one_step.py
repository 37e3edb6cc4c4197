"""docs/why/one-step.md: the functions and scripts that one model step passes, in order, from the code.

``WALK`` of `docs/walk.py` names them. A name that is gone is an error here. `tests/unit/test_one_step.py` takes a real
step along them: it passes all of them in this order, and none is missing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Final

from docs.walk import HEAD, LEFT_OUT, WALK, Stop

ROOT: Final = Path(__file__).parents[1]


def page() -> str:
    """The whole page."""
    return "".join((HEAD, *_walk(), *_left_out()))


def passed() -> Iterator[tuple[str, str]]:
    """File and name of each function that is named, in order; of a script its file, and no name."""
    for part in WALK:
        for stop in part.stops:
            for name in stop.names or ("",):
                yield stop.file, name


def _walk() -> Iterator[str]:
    for number, part in enumerate(WALK, 1):
        yield f"## {number}. {part.title}\n\n"
        for stop in part.stops:
            called = f": {', '.join(f'`{name}`' for name in stop.names)}" if stop.names else ""
            if not stop.is_printed:
                yield f"{_wrapped(f'`{stop.file}`{called}. {stop.text}')}\n\n"
                continue
            yield f"### {stop.file}\n\n{_wrapped(stop.text)}\n\n"
            if stop.names:
                yield f"```python\n{_functions(stop)}\n```\n\n"
            else:
                yield f"```lua\n{(ROOT / stop.file).read_text().rstrip()}\n```\n\n"


def _left_out() -> Iterator[str]:
    names = ", ".join(f"`{name}`" for name in LEFT_OUT)
    text = f"Each of these is a subject of its own, and says in its first line what it is for: {names}."
    yield f"## What a step passes besides\n\n{_wrapped(text)}\n"


def _wrapped(text: str) -> str:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + len(word) >= 118:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def _functions(stop: Stop) -> str:
    """The source of its functions; methods below the name of their class."""
    blocks: list[str] = []
    within = ""
    for name in stop.names:
        owner = name.rpartition(".")[0]
        source = _sources(stop.file)[name]
        if owner and owner != within:
            source = f"class {owner}:\n{source}"
        blocks.append(("\n\n" if not owner or owner != within else "\n") + source if blocks else source)
        within = owner
    return "\n".join(blocks)


@cache
def _sources(file: str) -> Mapping[str, str]:
    """The source of each function of a file, by its name, decorators included."""
    text = (ROOT / file).read_text()
    lines = text.splitlines()
    found: dict[str, str] = {}
    body = ast.parse(text).body
    owned = [("", body), *((f"{each.name}.", each.body) for each in body if isinstance(each, ast.ClassDef))]
    for owner, nodes in owned:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                kept = [*lines[first - 1 : node.body[0].lineno - 1], *_sentence(node, lines)]
                found[owner + node.name] = "\n".join([*kept, *lines[_after_docstring(node) : node.end_lineno]])
    return found


def _after_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The number of lines before the first statement of a function that is no docstring."""
    return (node.body[0].end_lineno or 0) if ast.get_docstring(node) else node.body[0].lineno - 1


def _sentence(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> list[str]:
    """The first paragraph of its docstring, as it stands there: the rest is for those who open the file."""
    if not ast.get_docstring(node):
        return []
    whole = lines[node.body[0].lineno - 1 : node.body[0].end_lineno]
    begun = list(takewhile(str.strip, whole))
    return begun if len(begun) == len(whole) else [*begun[:-1], f'{begun[-1]}"""']
