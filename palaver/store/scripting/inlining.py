"""Functions of one expression are put in where they are called: to make a function at each call of a script costs more
than what such a one does."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

_ONE: Final = re.compile(r"local function (?P<name>\w+)\((?P<parameters>[\w, ]*)\) return (?P<value>[^{]*) end\n")
"""Without a table, in which words stand for fields."""
_CALL: Final = re.compile(r"redis_call\(.*\)$")
_ATOM: Final = re.compile(r"[\w.]+$|'[^'\\]*'$")
"""A name, a field, a number, a text: it is the same wherever it is put, and costs nothing twice."""
_PARTS: Final = re.compile(r"'(?:\\.|[^'\\])*'|(?<![\w.])[A-Za-z_]\w*")
"""Texts, and words that are no fields."""
_LOCALS: Final = re.compile(r"\b(?:local(?: function)?|for) ([\w, ]+)|\(([\w, ]*)\)")
"""Names that a statement may declare: behind these words, and in parentheses, where parameters stand."""
_WORD: Final = re.compile(r"\w+")


class Expression(NamedTuple):
    """A function of one expression."""

    parameters: Sequence[str]
    value: str
    names: frozenset[str]
    """Names around it that it uses."""

    @classmethod
    def of(cls, text: str) -> tuple[str, Expression] | None:
        """Its name and itself, of the text of a statement that is one."""
        match = _ONE.fullmatch(text)
        if not match:
            return None
        parameters = [name for name in match["parameters"].split(", ") if name]
        words = {word for word in _PARTS.findall(match["value"]) if word[0] != "'"}
        return match["name"], cls(parameters, match["value"], frozenset(words.difference(parameters)))

    def put_in(self, arguments: Sequence[str]) -> str | None:
        """It with its arguments; None if one of them would be computed twice, or not at all."""
        if len(arguments) > len(self.parameters):
            return None
        given = dict(zip(self.parameters, [*arguments, *["nil"] * len(self.parameters)], strict=False))
        used = [word for word in _PARTS.findall(self.value) if word in given]
        if any(not _ATOM.match(value) and used.count(name) != 1 for name, value in given.items()):
            return None
        value = _PARTS.sub(lambda word: _in_parentheses(given.get(word[0], word[0]), word[0] in given), self.value)
        return value if _CALL.match(value) else f"({value})"


class KnownExpressions:
    """The functions of one expression that stand before a statement, and mean there what they meant where they stand.

    It is gone through for each file with all that is before it: what is seldom is looked for by sets.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, Expression] = {}
        self._used: set[str] = set()
        """All names that one of them uses, or has used."""

    def add(self, declares: Collection[str], expression: tuple[str, Expression] | None) -> None:
        """Add a statement: behind it, none is known that uses a name which it ``declares`` again."""
        if not self._used.isdisjoint(declares):
            for name in [name for name, known in self._by_name.items() if not known.names.isdisjoint(declares)]:
                del self._by_name[name]
        if expression:
            self._by_name.update([expression])
            self._used |= expression[1].names

    def among(self, words: Set[str]) -> Mapping[str, Expression]:
        """Return those that ``words`` name."""
        return {name: self._by_name[name] for name in words & self._by_name.keys()}


def put_in(text: str, expressions: Mapping[str, Expression]) -> str:
    """A statement, in which calls of ``expressions`` are what they answer."""
    called = {name: e for name, e in expressions.items() if f"{name}(" in text}
    if called:
        own = {name for names in _LOCALS.findall(text) for name in _WORD.findall(" ".join(names))}
        called = {name: e for name, e in called.items() if name not in own and own.isdisjoint(e.names)}
    return "".join(_pieces(text, called)) if called else text


def _pieces(text: str, expressions: Mapping[str, Expression]) -> Iterator[str]:
    at = 0
    for word in _PARTS.finditer(text):
        expression = expressions.get(word[0])
        if expression is None or word.start() < at or text[word.end() : word.end() + 1] != "(":
            continue
        arguments, end = _arguments(text, word.end() + 1)
        value = expression.put_in(["".join(_pieces(argument, expressions)) for argument in arguments])
        if value is not None:
            yield text[at : word.start()]
            yield value
            at = end
    yield text[at:]


def _arguments(text: str, begin: int) -> tuple[Sequence[str], int]:
    """The arguments of a call, and where it ends; they begin at ``begin``."""
    found, depth, at, start = list[str](), 1, begin, begin
    while depth:
        character = text[at]
        if character == "'":
            at = _PARTS.match(text, at).end() - 1  # type: ignore[union-attr]
        depth += (character in "({[") - (character in ")}]")
        if not depth or (depth == 1 and character == ","):
            found.append(text[start:at].strip())
            start = at + 1
        at += 1
    return [argument for argument in found if argument], at


def _in_parentheses(value: str, is_argument: bool) -> str:
    return f"({value})" if is_argument and not _ATOM.match(value) else value
