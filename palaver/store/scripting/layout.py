"""The order and nesting of a script's functions: unused ones are left out, and each other one is made where
all of its callers are.

Redis runs a script from its first line at each call, so each function at its left edge is made again each time, called
or not. A function that is made within its only caller costs nothing where this is not called, and one that is made
within the branch that calls it nothing where this is not taken.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Final

from palaver.store.scripting.frames import MOST_CAPTURED, Line, Section, Source, framed, joined
from palaver.store.scripting.inlining import Expression

_LOCALS: Final = re.compile(r"local (?P<function>function )?(?P<names>\w+(?:, \w+)*)(?P<value>[ (])?")
_HEADER: Final = re.compile(r"local function \w+\((?P<parameters>[^)]*)\)")
_WORDS: Final = re.compile(r"'(?:\\.|[^'\\])*'|(?<![\w.])([A-Za-z_]\w*)")
"""Words that may be the name of a local, or a text; a word behind a dot is a field."""
_BLOCKS: Final = re.compile(r"'(?:\\.|[^'\\])*'|\b(?P<word>function|for|while|do|then|else|elseif|repeat|until|end)\b")
_INNER: Final = re.compile(r"\b(?:local(?: function)?|for) ([\w, ]+)|\bfunction[ \w]*\(([^)]*)\)")
"""Names that a statement declares within itself."""


class Statement:
    """A statement at the left edge of a file, as Redis gets it."""

    def __init__(self, text: str, lines: Sequence[Line]) -> None:
        match = _LOCALS.match(text)
        self.text = text
        self.lines = lines
        self.words = frozenset(filter(None, _WORDS.findall(text)))
        self.declares = match["names"].split(", ") if match else []
        self.is_function = bool(match and match["function"])
        self.has_value = bool(match and match["value"])

    @cached_property
    def inner(self) -> frozenset[str]:
        """Names of locals that it declares within itself."""
        found = (name for names in _INNER.findall(self.text) for name in ",".join(names).split(","))
        return frozenset(map(str.strip, found))

    def branches(self, name: str) -> Iterator[Sequence[int]]:
        """The branches that each use of a name is in, by their beginnings, the outermost first. Functions and loops in
        it, which may be gone through often, are as a whole in the branch that they stand in."""
        open_blocks, loops, whole = list[int](), False, self.is_function
        for match in re.finditer(rf"{_BLOCKS.pattern}|(?<![\w.]){name}\b", self.text):
            word = match["word"]
            if word == "function" and whole:
                whole = False
            elif word in ("for", "while"):
                loops = True
            elif word in ("function", "repeat", "do"):
                open_blocks.append(match.end() if word == "do" and not loops else -1)
                loops = loops and word != "do"
            elif word == "then":
                open_blocks.append(match.end())
            elif word == "else":
                open_blocks[-1] = match.end()
            elif word in ("elseif", "until", "end") and open_blocks:
                open_blocks.pop()
            elif match[0] == name:
                yield open_blocks[: open_blocks.index(-1)] if -1 in open_blocks else [*open_blocks]

    @cached_property
    def expression(self) -> tuple[str, Expression] | None:
        """Its name and itself, if it is a function of one expression."""
        return Expression.of(self.text) if self.is_function else None


class _Piece:
    """A statement in a script, and the functions that are made within it."""

    def __init__(self, statement: Statement, part: int) -> None:
        self.statement = statement
        self.part = part
        self.host: _Piece | None = None
        self.within: list[_Piece] = []
        self.branches: Sequence[int] = ()
        """The branches of its host that it is in, by their beginnings."""
        self.users: list[_Piece] = []
        header = _HEADER.match(statement.text) if statement.is_function else None
        self.behind_header = header.end() if header else 0
        self.parameters = frozenset(header["parameters"].split(", ")) if header else frozenset[str]()
        self.captures = set[str]()
        """Names of locals around it that it uses, or a function within it."""

    def hosts(self) -> Iterator[_Piece]:
        """The functions around it, the next first."""
        host = self.host
        while host:
            yield host
            host = host.host

    @property
    def outermost(self) -> _Piece:
        """What it is within, at the left edge of its file."""
        return [self, *self.hosts()][-1]

    def words(self) -> set[str]:
        """Those of all functions within it, too."""
        return set(self.statement.words).union(*(piece.words() for piece in self.within))

    def source(self, *, declared: bool = True) -> Source:
        """Its text with all that is within; its locals are ``declared`` by it, or ahead of it."""
        statement = self.statement
        text, lines = statement.text, statement.lines
        if self.within:
            text, lines = self._filled()
        if declared:
            return Source(text, lines)
        return Source(text.removeprefix("local "), lines) if statement.has_value else Source("", ())

    def _filled(self) -> Source:
        text, lines = self.statement.text, self.statement.lines
        places = defaultdict[int, list[Source]](list)
        for piece in self.within:
            places[piece.branches[-1] if piece.branches else self.behind_header].append(piece.source())
        texts, origins, at, line = list[str](), list[Line](), 0, 0
        for place, sources in sorted(places.items()):
            inner, whole = joined(*sources), text.count("\n", at, place)
            texts += text[at:place], "\n", inner.text
            origins += (*lines[line : line + whole + 1], *inner.lines)
            at, line = place, line + whole
        return Source("".join((*texts, text[at:])), [*origins, *lines[line:]])

    def branches_for(self, piece: _Piece) -> Sequence[int]:
        """The branches of this one that all uses of another one are in; none if it would find other names there than it
        means."""
        name, meant = piece.statement.declares[0], piece.words().difference(*piece.inner()) | piece.captures
        if not self.statement.inner.isdisjoint({name, *meant}):
            return ()
        ways = [*self.statement.branches(name), *(other.branches for other in self.within if name in other.words())]
        return [places[0] for places in takewhile(lambda places: len({*places}) == 1, zip(*ways, strict=False))]

    def inner(self) -> Iterator[frozenset[str]]:
        """Names of locals that it, and each function within it, declares within itself."""
        yield self.statement.inner
        for piece in self.within:
            yield from piece.inner()


def laid_out(head: Sequence[Statement], parts: Sequence[Sequence[Statement]]) -> Source:
    """The text of a script that consists of ``parts``, the last of which is its own file, behind a generated ``head``.
    Each other part is a block behind the declaration of those of its locals that are used behind it."""
    pieces = _used([head, *parts], whole=-1 if head else len(parts))
    twice = _resolve(pieces)
    for piece in reversed(pieces):
        if piece.behind_header and twice.isdisjoint((*piece.captures, *piece.statement.declares)):
            _settle(piece)
    at_edge = defaultdict[int, list[_Piece]](list)
    for piece in pieces:
        if piece.host is None:
            at_edge[piece.part].append(piece)
    alone = [list(map(_alone, at_edge.pop(part, ()))) for part in (0, len(parts))]
    return framed(alone[0], [*map(_block, at_edge.values()), *alone[1]])


def _used(parts: Sequence[Sequence[Statement]], whole: int) -> Sequence[_Piece]:
    """All statements but unused functions; of the part ``whole``, those too."""
    pieces, words = list[_Piece](), set[str]()
    for number, part in reversed(list(enumerate(parts))):
        for statement in reversed(part):
            if number == whole or not statement.is_function or not words.isdisjoint(statement.declares):
                words |= statement.words
                pieces.append(_Piece(statement, number))
    return pieces[::-1]


def _resolve(pieces: Sequence[_Piece]) -> set[str]:
    """Find what each statement uses of those before it. Returns the names that are declared more than once: elsewhere
    these may be something else."""
    by_name = dict[str, _Piece]()
    twice = set[str]()
    for piece in pieces:
        for name in piece.statement.words & by_name.keys():
            by_name[name].users.append(piece)
            piece.captures.add(name)
        piece.captures -= piece.parameters
        for name in piece.statement.declares:
            if name in by_name:
                twice.add(name)
            by_name[name] = piece
    return twice


def _settle(piece: _Piece) -> None:
    """Put a function within the innermost one that all of its users are, or are in, if neither this nor those around it
    would then capture too much, or hide what it uses. There it stands in the innermost branch that they are in; within
    a statement that is no function, in a branch or not at all."""
    ways = [[user, *user.hosts()] for user in piece.users]
    name = piece.statement.declares[0]
    for host in next(iter(ways), ()):
        if not all(host in way for way in ways):
            continue
        around, branches = [host, *host.hosts()], host.branches_for(piece)
        if (host.behind_header or branches) and all(
            piece.captures.isdisjoint(outer.parameters)
            and (not outer.behind_header or len((outer.captures | piece.captures) - {name}) <= MOST_CAPTURED)
            for outer in around
        ):
            piece.host, piece.branches = host, branches
            host.within.insert(0, piece)
            for outer in around:
                outer.captures |= piece.captures
                outer.captures.discard(name)
            return


def _alone(piece: _Piece) -> Section:
    """A statement of which all is seen behind it."""
    return Section(piece.source(), set(piece.statement.declares), piece.words(), int(piece.statement.is_function))


def _block(pieces: Sequence[_Piece]) -> Section:
    """A part, behind the declaration of those of its locals that are used behind it."""
    exported, sources = list[str](), list[Source]()
    for piece in pieces:
        outside = any(user.outermost.part != piece.part for user in piece.users)
        if outside:
            exported += piece.statement.declares
        sources.append(piece.source(declared=not outside))
    text, lines = joined(*sources)
    begin = f"local {', '.join(exported)} do" if exported else "do"
    source = Source(f"{begin}\n{text}end\n", [lines[0], *lines, lines[-1]])
    words = set[str]().union(*(piece.words() for piece in pieces))
    return Section(source, set(exported), words, sum(piece.statement.is_function for piece in pieces))
