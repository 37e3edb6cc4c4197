"""`python -m deploy.words_check`: names that are missing or taken twice, and sentences that do not say who acts.

A public docstring that begins with a headless What, Whether, Which, … describes a thing and does not name it: a noun
names a thing, a verb an act. Docstrings are also the strings under attributes. A name is public if neither it nor a
name around it begins with an underscore.

Two classes of one name are two things that a reader takes for one, unless they are one thing on two sides (`SIDES`).
The blocking client is generated from the one on asyncio, and left out.

Whoever, somebody and nobody hide who acts: a sentence names the worker, the client, the person, or uses the passive.
`INDEFINITE` has how many there may be in each part of the repository. The numbers only go down.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = ("palaver", "workers", "api", "features")
GENERATED: Final = "palaver/client/sync/"
HEADLESS: Final = re.compile(r"(?:What|Whether|Who|Whose|How|Of|Those|Where|Which|When)\b")
SIDES: Final[Mapping[str, str]] = {
    "BulkResult": "the result of an operation on many runs: the API's answer, and the SDK's",
    "ChatCompletions": "a protocol: as workers ask in it, and as the model server answers in it",
    "Fork": "a conversation that begins as another one did: the request for it, and its script",
    "HandBack": "a verdict, and the script that applies it",
    "Messages": "a protocol: as workers ask in it, and as the model server answers in it",
    "Postpone": "a verdict, and the script that applies it",
    "ReasoningDropped": "a model's reasoning is not sent any more: the attempt's note of it, and the event",
    "Responses": "a protocol: as workers ask in it, and as the model server answers in it",
    "Run": "a run, and a run with the links of the native dialect",
    "SecretNames": "the names of a conversation's secrets: the API's answer, and the SDK's",
}
"""Names of two classes that are one thing on two sides, with the sides. At most `MOST_SIDES`."""
MOST_SIDES: Final = 10

_INDEFINITE: Final = re.compile(r"\b(?:whoever|somebody|nobody)\b", re.IGNORECASE)
PRODUCT: Final = ("palaver/", "workers/", "api/", "features/", "clients/", "deploy/", "examples/")
INDEFINITE: Final[Mapping[str, int]] = {"product code": 13, "pages": 0, "tests and tools": 504}
"""Words that hide who acts, at most, in each part. Lower a number when a change takes words away."""

Files = Mapping[str, str]
"""The texts of modules by their paths below the project's folder."""


class Docstring(NamedTuple):
    """A docstring, or the string under an attribute."""

    line: int
    name: str
    """The name of what it describes, with the names around it; empty for the module."""
    text: str


def faults(files: Files, sides: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with ``files``, whose classes may share the names of ``sides``: a line each."""
    places: dict[str, list[str]] = {}
    for path, text in files.items():
        module = ast.parse(text)
        for docstring in _docstrings(module, ""):
            if (headless := HEADLESS.match(docstring.text.lstrip())) and _is_public(path, docstring.name):
                name = docstring.name or "the module"
                yield f"{path}:{docstring.line}: {name}: '{headless[0]} …' describes, and names nothing"
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    for name, its in places.items():
        if len(its) > (2 if name in sides else 1):
            yield f"{its[0]}: {name} is another class, too: {', '.join(its[1:])}"
    for name in sides:
        if len(places.get(name, ())) < 2:
            yield f"SIDES: there are no two classes of the name {name}"
    if len(sides) > MOST_SIDES:
        yield f"SIDES: {len(sides)} names, of at most {MOST_SIDES}"


def _docstrings(node: ast.AST, name: str) -> Iterator[Docstring]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node)
        if text is not None:
            yield Docstring(node.body[0].lineno, name, text)
    before: ast.AST | None = None
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Expr(value=ast.Constant(value=str(text))):
                if target := _target(before):
                    yield Docstring(child.lineno, f"{name}.{target}".lstrip("."), text)
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _docstrings(child, f"{name}.{child.name}".lstrip("."))
            case ast.stmt() | ast.excepthandler() | ast.match_case():
                yield from _docstrings(child, name)
        before = child


def _target(node: ast.AST | None) -> str:
    """Return the name of an attribute that ``node`` assigns, the first of several; empty if there is none."""
    match node:
        case ast.AnnAssign(target=target) | ast.Assign(targets=[target]):
            while isinstance(target, ast.Tuple):
                target = target.elts[0]
            return target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)
    return ""


def _is_public(path: str, name: str) -> bool:
    names = (*Path(path).with_suffix("").parts, *name.split("."))
    return all(not part.startswith("_") or part.endswith("__") for part in names)


def part(path: str) -> str:
    """Return the part of the repository that a file belongs to, a key of `INDEFINITE`."""
    if path.endswith(".md"):
        return "pages"
    return "product code" if path.startswith(PRODUCT) and "/tests/" not in path else "tests and tools"


def indefinite(files: Files) -> dict[str, int]:
    """Count the words that hide who acts, by part of the repository."""
    counts = dict.fromkeys(INDEFINITE, 0)
    for path, text in files.items():
        counts[part(path)] += len(_INDEFINITE.findall(text))
    return counts


def indefinite_faults(counts: Mapping[str, int], most: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each part with more such words than it may have."""
    for name, count in counts.items():
        if count > most[name]:
            yield f"{name}: whoever, somebody, nobody {count} times, of at most {most[name]}: say who acts"


def texts() -> Files:
    """Read all text files of the repository, but for this check, its test and what is generated."""
    listed = ["git", "grep", "-lIiwE", "--untracked", "whoever|somebody|nobody"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    left_out = (GENERATED, "deploy/words_check.py", "tests/unit/test_words_check.py")
    return {name: (ROOT / name).read_text() for name in names if not name.startswith(left_out)}


def modules() -> Files:
    """Read the modules that the check is for."""
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    named = ((path.relative_to(ROOT).as_posix(), path) for path in paths)
    return {name: path.read_text() for name, path in named if not name.startswith(GENERATED) and "/tests/" not in name}


def main() -> None:
    """Print what is wrong, if anything is."""
    files = modules()
    lines = sorted((*faults(files, SIDES), *indefinite_faults(indefinite(texts()), INDEFINITE)))
    print("\n".join(lines) if lines else f"{len(files)} modules: every public thing has a name of its own")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
