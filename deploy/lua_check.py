"""`python -m deploy.lua_check`: what is wrong with the Lua scripts that can be seen without running them.

Each script is assembled as Redis gets it and compiled by Lua 5.1, whose bytecode says which globals it uses: those that
are not Redis' own are misspelled, or of a part that another uses without saying that it needs it. Each part is compiled
with what it uses and nothing else, and scripts of the core also without the parts that features have in them. The
bytecode also says how many locals there are at once, of which Lua has a limit. What a script does with ``args``,
``keys`` and ``reply`` is compared with its declaration.
"""

from __future__ import annotations

import os
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import lupa.lua51  # type: ignore[import-untyped]

from palaver.config.settings import Settings
from palaver.feature import features
from palaver.store.scripting.additions import all_hooks, all_lua_files, all_scripts
from palaver.store.scripting.assembly import Assembler, Files, Names, lua_files
from palaver.store.scripting.contracts.core import SCRIPTS
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.frames import Source
from palaver.store.scripting.hooks import PLACES, Hooks, parts_in, places
from palaver.store.scripting.scripts import VERSION
from palaver.store.scripting.shared_names import ScriptSettings, shared_names

REDIS: Final = frozenset(
    {
        *("KEYS", "ARGV", "redis", "cjson", "struct", "bit", "math", "string", "table"),
        *("assert", "error", "ipairs", "next", "pairs", "pcall", "select", "tonumber", "tostring", "type", "unpack"),
    }
)
"""Globals that a script finds in Redis, of those that are the same each time it runs."""
_GENERATED: Final = re.compile(r"(args|keys|reply|redis)_")
"""Locals of the generated head begin so. A part alone does not have them; `_undeclared` looks at their names."""
_COMMENTS: Final = re.compile(r"--[^\n]*|('(?:\\.|[^'\\\n])*')")
_POSITIONS: Final = re.compile(r"\b(?:ARGV|KEYS)\b")
_REPLY: Final = re.compile(r"\breply_(\w+) ?([{(])")
_FUNCTION: Final = re.compile(r"^local function (\w+)", re.MULTILINE)
_GETGLOBAL, _SETGLOBAL = 5, 7
MOST_LOCALS: Final = 190
"""That a script may have at once. Lua 5.1 compiles none with more than 200 (LUAI_MAXVARS): who comes near is told what
to do."""


class Global(NamedTuple):
    """A use of a global."""

    name: str
    line: int


class Chunk(NamedTuple):
    """What the bytecode of a function says."""

    globals: Sequence[Global]
    """Those of functions within it, too."""
    locals: int
    """How many it has of its own at once, at most."""


def chunk_of(text: str) -> Chunk:
    """What Lua makes of a text.

    Raises:
        lupa.lua51.LuaSyntaxError: it is no Lua.
    """
    lua: Any = lupa.lua51.LuaRuntime(encoding=None)
    return _Dump(lua.globals().string.dump(lua.compile(text.encode()))).chunk()


class _Dump:
    """Reads the functions of a chunk from what ``string.dump`` writes on this machine."""

    def __init__(self, dump: bytes) -> None:
        self._dump = dump
        self._at = 12  # the header

    def chunk(self) -> Chunk:
        """Of the function that begins here."""
        self._text()
        self._at += 2 * 4 + 4  # the lines of its definition, and four small numbers
        code = self._numbers()
        constants = [self._constant() for _ in range(self._number())]
        inner = [self.chunk() for _ in range(self._number())]
        lines = self._numbers()
        spans = [self._span() for _ in range(self._number())]
        for _ in range(self._number()):  # upvalues
            self._text()
        used = [
            Global(constants[instruction >> 14], line)
            for instruction, line in zip(code, lines, strict=True)
            if instruction & 0x3F in (_GETGLOBAL, _SETGLOBAL)
        ]
        at_once = max((sum(at in other for other in spans) for at in {span.start for span in spans}), default=0)
        return Chunk([*used, *(each for chunk in inner for each in chunk.globals)], at_once)

    def _span(self) -> range:
        """The instructions that see a local."""
        self._text()
        return range(self._number(), self._number())

    def _unpack(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self._dump, self._at)
        self._at += struct.calcsize(form)
        return value

    def _number(self) -> int:
        return int(self._unpack("i"))

    def _numbers(self) -> Sequence[int]:
        return [self._unpack("I") for _ in range(self._number())]

    def _text(self) -> str:
        size = self._unpack("N")
        self._at += size
        return self._dump[self._at - size : self._at].rstrip(b"\0").decode()

    def _constant(self) -> str:
        match self._unpack("b"):
            case 1:
                self._at += 1
            case 3:
                self._at += 8
            case 4:
                return self._text()
        return ""


def faults(
    scripts: Sequence[type[Script[Any]]], names: Names, files: Files, hooks: Hooks = MappingProxyType({})
) -> Iterator[str]:
    """What is wrong with ``scripts``, made of ``files`` with the parts of ``hooks``: a line each."""
    assembler = Assembler(names, files, hooks)
    code = {file: _COMMENTS.sub(lambda found: found[1] or "", text) for file, text in files.items()}
    for file, text in code.items():
        if _POSITIONS.search(text):
            yield f"{file}.lua: KEYS and ARGV have names: keys.x, args.x"
        for function in _FUNCTION.findall(text):
            if sum(len(re.findall(rf"\b{function}\b", each)) for each in code.values()) == 1:
                yield f"{file}.lua: {function} is never called"
    needed = {part for script in scripts for part in assembler.parts(script.name)}
    placed = {part for file in needed for part in parts_in(files[file], hooks)}
    for file in files.keys() - needed - placed:
        yield f"{file}.lua: no script needs it"
    for file in needed:
        yield from _compiled(assembler.alone(file))
    for script in scripts:
        yield from _compiled(assembler.script(script))
        yield from _undeclared(script, assembler.alone(script.name).text)


def faults_of_core(scripts: Sequence[type[Script[Any]]], names: Names, files: Files) -> Iterator[str]:
    """What is wrong with scripts of the core where there is no feature, and with the places that they have for parts: a
    line each."""
    there = {place for text in files.values() for place in places(text)}
    yield from (f"no script has the place {place}" for place in PLACES.keys() - there)
    yield from (f"{place} is no place of PLACES" for place in there - PLACES.keys())
    assembler = Assembler(names, files)
    for script in scripts:
        yield from _compiled(assembler.script(script))


def _compiled(source: Source) -> Iterator[str]:
    try:
        chunk = chunk_of(source.text)
    except lupa.lua51.LuaSyntaxError as error:
        number = re.search(r":(\d+):", str(error))
        place = source.lines[min(int(number[1]), len(source.lines)) - 1] if number else source.lines[-1]
        yield f"{place.file}:{place.number}: {error}"
        return
    for name, line in chunk.globals:
        if name not in REDIS and not _GENERATED.match(name):
            yield f"{source.lines[line - 1].file}:{source.lines[line - 1].number}: {name} is not defined"
    if chunk.locals > MOST_LOCALS:
        yield (
            f"{source.lines[-1].file}: {chunk.locals} locals at once, of at most {MOST_LOCALS}: declare some of its "
            "arguments as one record, or move functions that share names into one part"
        )


def _undeclared(script: type[Script[Any]], code: str) -> Iterator[str]:
    """Where a script, with what it uses of its parts, and its declaration differ."""
    shape = script.shape
    declared = {each.name for each in (*shape.args, *shape.lists)}
    used = set(re.findall(r"\bargs_(\w+)", code))
    for name in used - declared:
        yield f"{script.name}.lua: args.{name} is not declared"
    for name in declared - used:
        yield f"{script.name}.lua: args.{name} is declared, and not used"
    for name in set(re.findall(r"\bkeys_(\w+)", code)) - {key.name for key in shape.keys}:
        yield f"{script.name}.lua: keys.{name} is not declared"
    for each in shape.lists:
        loop = re.search(rf"\bfor (\w+(?:, \w+)*) in args_{each.name}\b", code)
        wanted = [field.name for field in each.fields]
        if each.batch and (loop is None or loop[1].split(", ")[1:] != wanted):
            yield f"{script.name}.lua: it is for i, {', '.join(wanted)} in args.{each.name}"
    replies = {reply.tag: reply for reply in script.replies.values()}
    for found in _REPLY.finditer(code):
        tag, given = found[1], _fields(code[found.end() :]) if found[2] == "{" else set[str]()
        if tag not in replies:
            yield f"{script.name}.lua: reply.{tag} is not declared"
            continue
        fields = replies[tag].fields
        for name in given - fields.keys():
            yield f"{script.name}.lua: reply.{tag} has no {name}"
        for name in (name for name, wire in fields.items() if name not in given and " or " not in wire.from_lua):
            yield f"{script.name}.lua: reply.{tag} needs {name}"
    for tag in replies.keys() - set(re.findall(r"\breply_(\w+)", code)):
        yield f"{script.name}.lua: reply.{tag} is declared, and not given"


def _fields(code: str) -> set[str]:
    """The names of a table's fields; ``code`` begins behind its opening brace."""
    found, depth, begins = set[str](), 1, True
    for token in re.finditer(r"(\w+)(\s*=(?!=))?|[{}()\[\],]", code):
        if token[0] in "{([":
            depth += 1
        elif token[0] in "})]":
            depth -= 1
            if depth == 0:
                break
        elif begins and token[2] and depth == 1:
            found.add(token[1])
        begins = token[0] in "{,"
    return found


def main() -> None:
    """Print what is wrong, if anything is. Parts of features that are off here are checked, too."""
    os.environ.update({feature.switch: "on" for feature in features().values() if feature.switch})
    files, names, hooks = all_lua_files(), shared_names(ScriptSettings.of(Settings()), VERSION), all_hooks()
    try:
        found = sorted({*faults(all_scripts(), names, files, hooks), *faults_of_core(SCRIPTS, names, lua_files())})
    except (LookupError, RecursionError) as error:
        found = [str(error)]
    print("\n".join(found) if found else _summary(Assembler(names, files, hooks), len(files)))
    sys.exit(bool(found))


def _summary(assembler: Assembler, files: int) -> str:
    counts = {script.name: chunk_of(assembler.script(script).text).locals for script in all_scripts()}
    most = sorted(counts.items(), key=lambda each: -each[1])
    return f"{len(all_scripts())} scripts, {files} files: no faults; locals, of {MOST_LOCALS}: " + ", ".join(
        f"{name} {count}" for name, count in most
    )


if __name__ == "__main__":
    main()
