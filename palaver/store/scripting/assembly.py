"""The text of each script: a head that is generated from its declaration, the parts that it needs, and its own file.

A Lua file says on a line ``-- needs: …`` which parts it builds on; the assembler puts each of them in front of it, once
and behind its own needs. A part is a block of its own: what is behind it sees those of its names that it uses
(``layout.py``). Parts of features stand at named places in the files of the core (``hooks.py``). ``Namespace.NAME`` in
Lua is what Python knows by that name (``shared_names.py``) and is put in as a literal. A name that Python does not know
is an error here, not in Redis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

from palaver.store.scripting.contracts.declaration import Group, List, Script, ScriptReply, Shape
from palaver.store.scripting.contracts.wire import Field
from palaver.store.scripting.frames import Line, Source
from palaver.store.scripting.hooks import Hooks, parts_in, with_parts
from palaver.store.scripting.inlining import KnownExpressions, put_in
from palaver.store.scripting.layout import Statement, laid_out

_NEEDS: Final = re.compile(r"^-- needs: (.+)$", re.MULTILINE)
_TOKENS: Final = re.compile(
    r"""--[^\n]*
    | '(?:\\.|[^'\\\n])*'
    | \b(?P<namespace>[A-Z][A-Za-z]*[a-z][A-Za-z]*)\.(?P<name>[A-Z][A-Z0-9_]*)\b
    | \b(?P<local>(?:args|keys|reply)\.\w+|redis\.call)\b
    """,
    re.VERBOSE,
)
"""A comment, a text, a name of Python's, or a name that is a local: those match faster than fields of a table."""

_BEGINS: Final = re.compile(r"(?!end\b|else)[A-Za-z_]")
"""The first line of a statement of a file: at the left edge, where none of its other lines has a word but ``end``."""

_PLACEHOLDER: Final = re.compile("@([A-Z]+)@")
Names = Mapping[str, Mapping[str, object]]
Files = Mapping[str, str]
"""The texts of Lua files, by name."""


class Template(str):
    """A text in which ``@NAME@`` stands for something. To look for it in Lua is ten times as dear as to join parts."""

    __slots__ = ()


class Assembler:
    """Makes scripts of ``files``, in which ``names`` are known, with the parts that ``hooks`` has at their places. It
    translates each file once."""

    def __init__(self, names: Names, files: Files, hooks: Hooks = MappingProxyType({})) -> None:
        self._names = names
        self._files = files
        self._hooks = hooks
        self._parts: dict[str, Sequence[str]] = {}
        self._translated: dict[str, Sequence[Statement]] = {}

    def script(self, script: type[Script[Any]]) -> Source:
        """The whole text of a script.

        Raises:
            LookupError: a name that Python does not know, a part that is not there, or a field that no place reads.
            RecursionError: parts need each other.
        """
        head = list(_split(*_lines(f"contract of {script.name}", contract(script))))
        return laid_out(head, [self.translate(part) for part in self.parts(script.name)])

    def alone(self, name: str) -> Source:
        """The text of a file behind all that it uses, without the head that is generated for a script. Raises the
        same."""
        return laid_out([], [self.translate(part) for part in self.parts(name)])

    def parts(self, name: str, above: tuple[str, ...] = ()) -> Sequence[str]:
        """The names of all files that the file ``name`` needs, each behind its own needs, and of itself.

        Raises:
            KeyError: a part is not there.
            RecursionError: parts need each other.
        """
        if name in above:
            raise RecursionError(" needs ".join((*above, name)))
        if name not in self._parts:
            own, names = self._files[name], list[str]()
            texts = (own, *(self._files[part] for part in parts_in(own, self._hooks)))
            for needed in (each for text in texts for line in _NEEDS.findall(text) for each in line.split(", ")):
                names += (part for part in self.parts(f"_{needed}", (*above, name)) if part not in names)
            self._parts[name] = [*names, name]
        return self._parts[name]

    def translate(self, name: str) -> Sequence[Statement]:
        """Return the statements of a file as they stand in scripts. Raises as `script`."""
        if name not in self._translated:
            known = KnownExpressions()
            for part in self.parts(name)[:-1]:
                for statement in self.translate(part):
                    known.add(statement.declares, statement.expression)
            self._translated[name] = statements = list[Statement]()
            for statement in _statements([*with_parts(name, self._files, self._hooks)], self._names):
                if called := known.among(statement.words):
                    statement = Statement(put_in(statement.text, called), statement.lines)
                statements.append(statement)
                known.add(statement.declares, statement.expression)
        return self._translated[name]


@cache
def lua_files() -> Files:
    """Every Lua file."""
    folder = resources.files("palaver.store.scripting") / "lua"
    return {file.name.removesuffix(".lua"): file.read_text() for file in folder.iterdir()}


def _statements(lines: Sequence[tuple[str, Line]], names: Names) -> Iterator[Statement]:
    """The statements of a file, without comments and lines that have nothing else."""
    text = _for_redis("".join(line for line, _ in lines), [place for _, place in lines], names)
    places = (place for _, place in lines)
    filled = [
        (line.rstrip() + "\n", place) for line, place in zip(text.splitlines(), places, strict=True) if line.strip()
    ]
    return _split([line for line, _ in filled], [place for _, place in filled])


def _split(lines: Sequence[str], places: Sequence[Line]) -> Iterator[Statement]:
    """The statements that lines consist of."""
    begins = [at for at, line in enumerate(lines) if not at or _BEGINS.match(line)]
    for at, end in pairwise([*begins, len(lines)]):
        yield Statement("".join(lines[at:end]), places[at:end])


def _lines(file: str, text: str) -> tuple[Sequence[str], Sequence[Line]]:
    lines = text.splitlines(keepends=True)
    return lines, [Line(file, number) for number in range(1, len(lines) + 1)]


def contract(script: type[Script[Any]]) -> str:
    """The generated head of a script: a local for each of its ``keys.x``, ``args.x`` and ``reply.x``."""
    shape, at = script.shape, 1
    lines = ["local KEYS, ARGV, tonumber, redis_call = KEYS, ARGV, tonumber, redis['call']"]
    lines += _keys(shape)
    for arg in shape.args:
        if isinstance(arg, Group):
            value = _table(arg.fields, [f"ARGV[{at + i}]" for i in range(len(arg.fields))])
            at += len(arg.fields)
        else:
            value = _value(arg, f"ARGV[{at}]")
            at += 1
        lines.append(f"local args_{arg.name} = {value}")
    lines += _lists(shape, at)
    lines += (f"local function reply_{reply.tag}{_constructor(reply)} end" for reply in script.replies.values())
    return "\n".join(lines) + "\n"


def _keys(shape: Shape) -> Iterator[str]:
    for at, key in enumerate(shape.keys, 1):
        yield f"local keys_{key.name} = KEYS[{at}]"


def _lists(shape: Shape, first: int) -> Iterator[str]:
    """Lines that read the lists; the first of them begins at ARGV ``first``."""
    if not shape.lists:
        return
    yield f"local {', '.join(f'args_{array.name}' for array in shape.lists)} do"
    yield f"  local at, key = {first}, {len(shape.keys)}"
    for array in shape.lists:
        keys = sum(field.wire is None for field in array.fields)
        values = len(array.fields) - keys
        places = [f"KEYS[key + {i + 1}]" for i in range(keys)] + [f"ARGV[at + {i + 1}]" for i in range(values)]
        step = f"at, key = at + {values}, key + {keys}" if keys else f"at = at + {values}"
        yield from _loop(array, places, step) if array.batch else _list(array, places, step)
    yield "end"


def _list(of: List, places: Sequence[str], step: str) -> Iterator[str]:
    item = _table(of.fields, places) if of.record else _value(of.fields[0], places[0])
    yield "  local list = {}"
    yield "  for i = 1, ARGV[at] do"
    yield f"    list[i] = {item}"
    yield f"    {step}"
    yield "  end"
    yield f"  args_{of.name}, at = list, at + 1"


def _loop(of: List, places: Sequence[str], step: str) -> Iterator[str]:
    """A function that answers the next one's number and values each time."""
    values = ", ".join(_value(field, place) for field, place in zip(of.fields, places, strict=True))
    behind = step.replace("at + ", "at - ").replace("key + ", "key - ")
    yield "  local i, count = 0, ARGV[at] + 0"
    yield f"  {behind}"
    yield f"  function args_{of.name}()"
    yield "    if i == count then return end"
    yield "    i = i + 1"
    yield f"    {step}"
    yield f"    return i, {values}"
    yield "  end"


def _table(fields: Sequence[Field], places: Sequence[str]) -> str:
    inner = (f"{field.name} = {_value(field, place)}" for field, place in zip(fields, places, strict=True))
    return f"{{ {', '.join(inner)} }}"


def _value(field: Field, place: str) -> str:
    return place if field.wire is None else field.wire.to_lua.replace("{}", place)


def _constructor(reply: ScriptReply) -> str:
    if not reply.fields:
        return f"() return {{ '{reply.tag}' }}"
    values = ", ".join(wire.from_lua.replace("{}", f"r.{name}") for name, wire in reply.fields.items())
    return f"(r) return {{ '{reply.tag}', {values} }}"


def _for_redis(text: str, places: Sequence[Line], names: Names) -> str:
    """Lua as Redis gets it: without comments, with a literal for each name of Python, and locals for what the generated
    head has."""

    def instead(token: re.Match[str]) -> str:
        if token["local"]:
            return token[0].replace(".", "_")
        if not token["namespace"]:
            return "" if token[0].startswith("--") else token[0]
        try:
            return literal(names[token["namespace"]][token["name"]])
        except KeyError:
            file, number = places[text.count("\n", 0, token.start())]
            raise LookupError(f"{file}:{number}: Python knows no {token[0]}") from None

    return _TOKENS.sub(instead, text)


def literal(value: object) -> str:
    """A value of Python in Lua; of a set, a function that says whether something is in it, and of a template, one that
    answers the text with what a table has by these names."""
    match value:
        case bool():
            return "true" if value else "false"
        case Template():
            parts = _PLACEHOLDER.split(value)
            parts[::2] = map(literal, parts[::2])
            parts[1::2] = (f"x.{name}" for name in parts[1::2])
            return f"function(x) return {' .. '.join(parts)} end"
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
            return f"'{escaped}'"
        case int():
            return str(int(value))
        case frozenset():
            return f"function(x) return {' or '.join(f'x == {literal(member)}' for member in sorted(value))} end"
        case Mapping():
            return f"{{ {', '.join(f'[{literal(key)}] = {literal(item)}' for key, item in value.items())} }}"
    raise TypeError(f"{value!r} has no form in Lua")
