"""The order and nesting of a script's functions: unused ones are left out, and each other one is made where
all of its callers are.

Redis runs a script from its first line at each call, so each function at its left edge is made again each time, called
or not. A function that is made within its only caller costs nothing where this is not called.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from palaver.store.scripting.frames import MOST_CAPTURED, Line, Section, Source, framed, joined
from palaver.store.scripting.inlining import Expression

_LOCALS: Final = re.compile(r"local (?P<function>function )?(?P<names>\w+(?:, \w+)*)(?P<value>[ (])?")
_HEADER: Final = re.compile(r"local function \w+\((?P<parameters>[^)]*)\)")
_WORDS: Final = re.compile(r"'(?:\\.|[^'\\])*'|(?<![\w.])([A-Za-z_]\w*)")
"""Words that may be the name of a local, or a text; a word behind a dot is a field."""


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
            inner = joined(*(piece.source() for piece in self.within))
            text = f"{text[: self.behind_header]}\n{inner.text}{text[self.behind_header :]}"
            lines = [lines[0], *inner.lines, *lines]
        if declared:
            return Source(text, lines)
        return Source(text.removeprefix("local "), lines) if statement.has_value else Source("", ())


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
    would then capture too much, or hide what it uses."""
    ways = [[user, *user.hosts()] for user in piece.users]
    name = piece.statement.declares[0]
    for host in next(iter(ways), ()):
        around = [host, *host.hosts()]
        if (
            host.behind_header
            and all(host in way for way in ways)
            and all(
                piece.captures.isdisjoint(outer.parameters)
                and len((outer.captures | piece.captures) - {name}) <= MOST_CAPTURED
                for outer in around
            )
        ):
            piece.host = host
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
