"""Functions of one expression are put in where they are called: to make a function at each call of a script costs more
than what such a one does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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


def put_in(text: str, expressions: Mapping[str, Expression]) -> str:
    """A statement, in which calls of ``expressions`` are what they answer."""
    own = {name for names in _LOCALS.findall(text) for name in re.findall(r"\w+", " ".join(names))}
    return "".join(_pieces(text, {name: e for name, e in expressions.items() if own.isdisjoint({name, *e.names})}))


def _pieces(text: str, expressions: Mapping[str, Expression]) -> Iterator[str]:
    at = 0
    for word in _PARTS.finditer(text):
        expression = expressions.get(word[0])
        if expression is None or word.start() < at or text[word.end() : word.end() + 1] != "(":
            continue
        arguments, end = _arguments(text, word.end() + 1)
        value = expression.put_in([put_in(argument, expressions) for argument in arguments])
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
