"""A declaration of a script makes both sides: what Python sends is what Lua reads, and the other way round."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import new_class
from typing import Any, Literal, NamedTuple

import pytest

from palaver.errors import NewerVersion
from palaver.store.redis.keys import Key
from palaver.store.scripting.additions import all_lua_files, all_scripts
from palaver.store.scripting.assembly import Assembler, literal
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.replies import RefusalCode
from palaver.store.scripting.contracts.wire import Batch, Json
from palaver.store.scripting.refusals import refusal
from tests.contract.clock import TurnedDatabase


class Colour(StrEnum):
    RED = "red"


class Place(NamedTuple):
    here: Key
    there: Key


class Size(NamedTuple):
    width: int
    height: int | None


class Part(NamedTuple):
    place: Key
    name: str
    heavy: bool
    data: Json | None = None


class Piece(NamedTuple):
    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Whole:
    text: str
    raw: bytes
    number: int
    yes: bool
    no: bool
    colour: Colour
    nothing: str | None
    zero: int | None
    names: tuple[str, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Told:
    json: str


class Try(Script[Whole | Told]):
    place: Place
    other: Key
    text: str
    maybe: str | None
    number: int
    none: int | None
    yes: bool
    colour: Colour
    mode: Literal["a", "b"]
    json: Json
    size: Size
    parts: tuple[Part, ...]
    words: tuple[str, ...]


GIVEN = Try(
    place=Place("h", "t"),
    other="o",
    text="x",
    maybe=None,
    number=2**53,
    none=None,
    yes=True,
    colour=Colour.RED,
    mode="b",
    json=b'{"a":1}',
    size=Size(3, None),
    parts=(Part("k1", "n1", True, "{}"), Part("k2", "n2", False)),
    words=("one", "two"),
)


async def ask(script: Script[Any], lua: str) -> Any:
    source = Assembler({}, {script.name: lua}).script(type(script)).text
    keys, args = script.pack()
    redis = TurnedDatabase().client()
    answer = await redis.eval(source, len(keys), *keys, *args)
    await redis.aclose()
    return script.read(answer)


async def test_lua_reads_what_python_sends() -> None:
    told = await ask(
        GIVEN,
        """local seen = {
  keys.here, keys.there, keys.other, args.text, tostring(args.maybe),
  string.format('%.0f', args.number), tostring(args.none), tostring(args.yes), args.colour, args.mode, args.json,
  args.size.width + 1, tostring(args.size.height), #args.parts, #args.words,
}
for _, part in ipairs(args.parts) do
  for _, each in ipairs({ part.place, part.name, tostring(part.heavy), tostring(part.data) }) do
    seen[#seen + 1] = each
  end
end
for _, word in ipairs(args.words) do seen[#seen + 1] = word end
return reply.told { json = table.concat(seen, ' ') }
""",
    )
    assert told == Told(
        'h t o x nil 9007199254740992 nil true red b {"a":1} 4 nil 2 2 k1 n1 true {} k2 n2 false nil one two'
    )


async def test_python_reads_what_lua_answers() -> None:
    whole = await ask(
        GIVEN,
        """return reply.whole {
  text = 'é', raw = 'é', number = 7, yes = true, no = nil, colour = 'red', zero = 0, names = { 'a', 'b' },
  pieces = { { 'p', 1 }, { 'q', 2 } },
}
""",
    )
    assert whole == Whole(
        "é", "é".encode(), 7, True, False, Colour.RED, None, 0, ("a", "b"), (Piece("p", 1), Piece("q", 2))
    )


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("place", ("h", "t")),
        ("other", None),
        ("text", None),
        ("text", b"x"),
        ("number", "1"),
        ("number", True),
        ("number", 1.5),
        ("none", "1"),
        ("yes", 1),
        ("colour", "red"),
        ("json", {"a": 1}),
        ("size", Size(1, "2")),  # type: ignore[arg-type]
        ("parts", "parts"),
        ("parts", (Part("k", "n", None),)),  # type: ignore[arg-type]
        ("words", ("one", 2)),
    ],
)
def test_a_wrong_type_is_refused_before_redis(field: str, wrong: object) -> None:
    GIVEN.pack()
    with pytest.raises(TypeError, match=field):
        Try(**{**vars(GIVEN), field: wrong}).pack()


def test_a_wrong_number_of_arguments_is_refused_before_redis() -> None:
    given = dict(vars(GIVEN))
    with pytest.raises(TypeError, match="more"):
        Try(**given, more=1)  # type: ignore[call-arg]
    del given["mode"]
    with pytest.raises(TypeError, match="mode"):
        Try(**given)


@pytest.mark.parametrize("answer", [[b"other"], [b"told"], [b"told", b"a", b"b"]])
def test_a_reply_that_is_not_declared_is_no_success(answer: list[bytes]) -> None:
    with pytest.raises(TypeError, match=r"other|told"):
        GIVEN.read(answer)


def test_newer_code_is_told_by_every_script() -> None:
    with pytest.raises(NewerVersion):
        GIVEN.read([b"newer"])


def _declare(**hints: object) -> Any:
    def body(namespace: dict[str, Any]) -> None:
        namespace["__annotations__"] = hints

    return new_class("Wrong", (Script[Told],), exec_body=body)


@pytest.mark.parametrize(
    ("hints", "said"),
    [
        ({"x": float}, "float"),
        ({"words": tuple[str, ...], "late": int}, "behind late"),
        ({"parts": Batch[Part], "words": tuple[str, ...]}, "a batch comes last"),
        ({"maybe": Key | None, "other": Key}, "behind maybe"),
        ({"maybe": Key | None, "parts": tuple[Part, ...]}, "behind maybe"),
    ],
)
def test_what_cannot_travel_is_refused_before_it_is_asked(hints: dict[str, object], said: str) -> None:
    script = _declare(**hints)
    with pytest.raises(TypeError, match=said):
        script.shape  # noqa: B018  # Made when it is first looked at.


async def test_a_batch_is_a_loop_over_values() -> None:
    parts = (Part("k1", "n1", True, "{}"), Part("k2", "n2", False))
    lua = """local seen = {}
for i, place, name, heavy, data in args.parts do
  seen[#seen + 1] = i .. place .. name .. tostring(heavy) .. tostring(data)
end
return reply.told { json = table.concat(seen, ' ') }
"""
    script = _declare(here=Key, text=str, words=tuple[str, ...], parts=Batch[Part])
    assert await ask(script(here="h", text="t", words=("a", "b"), parts=parts), lua) == Told(
        "1k1n1true{} 2k2n2falsenil"
    )
    assert await ask(script(here="h", text="t", words=(), parts=()), lua) == Told("")


@pytest.mark.parametrize(("key", "seen"), [("k", "k"), (None, "nil")])
async def test_the_last_key_may_be_none(key: str | None, seen: str) -> None:
    script = _declare(first=Key, maybe=Key | None)
    lua = "return reply.told { json = keys.first .. tostring(keys.maybe) }\n"
    assert await ask(script(first="a", maybe=key), lua) == Told("a" + seen)


def test_a_value_of_python_is_written_in_lua() -> None:
    assert literal("it's\n\\") == "'it\\'s\\n\\\\'"
    assert literal({Colour.RED: True, "n": 2}) == "{ ['red'] = true, ['n'] = 2 }"
    with pytest.raises(TypeError):
        literal(1.5)


def test_every_script_has_a_lua_file_of_its_name() -> None:
    files = [name for name in all_lua_files() if not name.startswith("_")]
    assert sorted(script.name for script in all_scripts()) == sorted(files)


def test_every_refusal_has_a_sentence() -> None:
    for code in RefusalCode:
        conflict = refusal(code, "run_1", "item 1: ")
        assert (conflict.code, conflict.run_id) == (code, "run_1")
        assert str(conflict).startswith("item 1: ")
        assert len(str(conflict)) > 20
