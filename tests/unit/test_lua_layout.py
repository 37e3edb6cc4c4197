"""What the assembler makes of the files of a script does what the files do."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import lupa.lua51  # type: ignore[import-untyped]
import pytest

from deploy.lua_check import chunk_of
from palaver.config.settings import Settings
from palaver.store.redis.keys import Key
from palaver.store.scripting.additions import all_hooks, all_lua_files, all_scripts
from palaver.store.scripting.assembly import Assembler
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.steps import Promote
from palaver.store.scripting.frames import MOST_CAPTURED
from palaver.store.scripting.scripts import VERSION
from palaver.store.scripting.shared_names import ScriptSettings, shared_names

NAMES = shared_names(ScriptSettings.of(Settings()), VERSION)


@dataclass(frozen=True, slots=True)
class Written:
    what: str


class Write(Script[Written]):
    place: Key
    text: str
    spare: str


def script(own: str, **parts: str) -> str:
    """The text of a script, without its head's base."""
    return Assembler(NAMES, {**parts, "write": own}).script(Write).text


def lines(own: str, **parts: str) -> list[str]:
    return script(own, **parts).splitlines()[1:]


def answer(text: str) -> Any:
    """What a script answers whose KEYS and ARGV are these."""
    lua: Any = lupa.lua51.LuaRuntime()
    lua.execute("KEYS, ARGV, redis = { 'key' }, { 'text', 'spare' }, { call = function(...) return ... end }")
    return lua.execute(text)


def test_a_part_keeps_its_names_to_itself_and_a_script_has_what_it_uses() -> None:
    parts = {
        "_now": "local TIME = redis.call('TIME')\nlocal NOW, AGE = TIME[1], 0\n",
        "_note": "-- needs: now\nlocal count\nlocal function spare() return {} end\n"
        "local function other() spare() end\n"
        "local function note(text)\n  redis.call('SET', keys.place, text .. NOW)\nend\n",
    }
    assert lines("-- needs: note\nnote(args.text)\nnote('')\n", **parts) == [
        "local NOW, AGE do",
        "local TIME = redis_call('TIME')",
        "NOW, AGE = TIME[1], 0",
        "end",
        "local keys_place = KEYS[1]",
        "local note do",
        "local count",
        "function note(text)",
        "  redis_call('SET', keys_place, text .. NOW)",
        "end",
        "end",
        "local args_text = ARGV[1]",
        "note(args_text)",
        "note('')",
    ]


def test_a_function_is_made_within_the_only_one_that_calls_it() -> None:
    part = (
        "local sum = 0\nlocal function add(n)\n  sum = sum + n\nend\n"
        "local function twice(n)\n  add(n)\n  add(n)\n  return sum\nend\n"
    )
    assert lines("-- needs: part\nreturn twice(4)\n", _part=part) == [
        "local twice do",
        "local sum = 0",
        "function twice(n)",
        "local function add(n)",
        "  sum = sum + n",
        "end",
        "",
        "  add(n)",
        "  add(n)",
        "  return sum",
        "end",
        "end",
        "return twice(4)",
    ]


def test_a_function_is_made_in_the_branch_that_calls_it() -> None:
    part = (
        "local sum = 0\nlocal function add(n)\n  sum = sum + n\nend\n"
        "local function some(n)\n  if n > 3 then add(n) return sum end\n  return -1\nend\n"
    )
    assert lines("-- needs: part\nif args.text then return some(4) .. some(2) end\n", _part=part) == [
        "local sum do",
        "sum = 0",
        "end",
        "local args_text = ARGV[1]",
        "if args_text then",
        "local function some(n)",
        "  if n > 3 then",
        "local function add(n)",
        "  sum = sum + n",
        "end",
        " add(n) return sum end",
        "  return -1",
        "end",
        " return some(4) .. some(2) end",
    ]
    assert answer(script("-- needs: part\nif args.text then return some(4) .. some(2) end\n", _part=part)) == "4-1"


@pytest.mark.parametrize(
    ("why", "calls", "answers", "stands"),
    [
        ("two branches", "if n > 3 then add(n) else add(1) end return sum", "45", "(n)\nlocal function add"),
        ("a branch in another", "if n > 0 then if n > 3 then add(n) end add(1) end return sum", "56", "then\nlocal"),
        ("a condition", "if add(n) then return 0 elseif add(1) then return 0 end return sum", "58", "(n)\nlocal"),
        ("a loop", "for i = 1, n do if i > 3 then add(i) end end return sum", "44", "(n)\nlocal function add"),
        ("a loop in a branch", "if n > 3 then while sum < 9 do add(n) end end return sum", "1212", "then\nlocal"),
        ("a block", "if n > 3 then do add(n) end end return sum", "44", " do\nlocal function add"),
        ("a function", "local f = function() if n > 3 then add(n) end end f() return sum", "44", "(n)\nlocal"),
        ("a name of a branch", "if n > 3 then local sum = 7 add(n) end return sum", "44", "(n)\nlocal function add"),
        ("a text", "if n > 3 then add(n) end return 'add' and sum", "44", "then\nlocal function add"),
        ("a field", "local t = {} t.add = 1 if n > 3 then add(n) end return sum", "44", "then\nlocal function add"),
    ],
)
def test_it_is_made_once_ahead_of_all_its_calls(why: str, calls: str, answers: str, stands: str) -> None:
    part = f"local sum = 0\nlocal function add(n)\n  sum = sum + n\nend\nlocal function all(n)\n  {calls}\nend\n"
    text = script("-- needs: part\nreturn all(4) .. all(2)\n", _part=part)
    assert answer(text) == answers, why
    assert stands in text, why


def test_each_line_has_its_origin() -> None:
    part = "local function add(n)\n  return n\nend\nlocal function some(n)\n  if n then return add(n) end\nend\n"
    source = Assembler(NAMES, {"_part": part, "write": "-- needs: part\nreturn some(args.text)\n"}).script(Write)
    made = zip(source.text.splitlines(), source.lines, strict=True)
    assert [(text, line.number) for text, line in made if line.file == "_part.lua"] == [
        ("local some do", 4),
        ("function some(n)", 4),
        ("  if n then", 5),
        ("local function add(n)", 1),
        ("  return n", 2),
        ("end", 3),
        (" return add(n) end", 5),
        ("end", 6),
        ("end", 6),
    ]


def test_what_it_uses_of_its_own_part_goes_with_it() -> None:
    text = script(
        "-- needs: far\nreturn far(2) .. far(3)\n",
        _near="local steps = 1\nlocal function near(n)\n  steps = steps * n\n  return steps\nend\n",
        _far="-- needs: near\nlocal function far(n)\n  return near(n) + 1\nend\n",
    )
    assert "local steps do\nsteps = 1\nend\nlocal far do\nfunction far(n)\nlocal function near(n)" in text
    assert answer(text) == "37"


@pytest.mark.parametrize(
    ("why", "near", "far"),
    [
        ("a parameter", "local n = 5\nlocal function near()\n  return n\nend\n", "n"),
        ("a name of both parts", "local own = 5\nlocal function near()\n  return own\nend\n", "m"),
    ],
)
def test_it_stays_where_what_it_uses_would_be_hidden(why: str, near: str, far: str) -> None:
    text = script(
        "-- needs: far\nreturn far(2)\n",
        _near=near,
        _far=f"-- needs: near\nlocal own = 0\nlocal function far({far})\n  return near() + {far} + own\nend\n",
    )
    assert answer(text) == 7, why


def test_a_function_with_two_callers_is_made_where_both_are() -> None:
    text = script(
        "-- needs: part\nreturn all()\n",
        _part="local function one()\n  return 1\nend\nlocal function two()\n  return one() + one()\nend\n"
        "local function three()\n  return two() + one()\nend\nlocal function all()\n  return two() .. three()\nend\n",
    )
    assert text.index("function all") < text.index("function one") < text.index("function two")
    assert answer(text) == "23"


def test_an_argument_is_read_where_it_is_first_needed() -> None:
    own = "if keys.place == 'key' then return 1 end\nreturn args.spare .. args.text\n"
    assert [line for line in lines(own) if "ARGV" in line] == lines(own)[2:4]


@pytest.mark.parametrize(
    ("function", "call", "put_in"),
    [
        ("at(place) return 'at:' .. place", "at(args.text)", "('at:' .. args_text)"),
        ("at(place) return 'at:' .. place", "at('a' .. 'b')", "('at:' .. ('a' .. 'b'))"),
        ("at(place) return place .. place", "at('a')", "('a' .. 'a')"),
        ("at(place) return place .. place", "at('a' .. 'b')", "at('a' .. 'b')"),
        ("at(place, more) return place .. (more or '')", "at(args.text)", "(args_text .. (nil or ''))"),
        ("at(place) return redis.call('GET', place)", "at('(,')", "redis_call('GET', '(,')"),
        ("at(place) return { place = place }", "at('a')", "at('a')"),
        ("at(...) return ...", "at('a')", "at('a')"),
        ("at(place) return 'at:' .. place", "at(at('a'))", "('at:' .. (('at:' .. 'a')))"),
        ("at(place) return 'at:' .. place", "'at(1)'", "'at(1)'"),
    ],
)
def test_a_function_of_one_expression_is_put_in_where_it_is_called(function: str, call: str, put_in: str) -> None:
    assert f"return {put_in}" in lines(f"-- needs: part\nreturn {call}\n", _part=f"local function {function} end\n")


def test_it_is_not_put_in_where_its_names_are_others() -> None:
    text = script(
        "-- needs: part\nlocal function other(ROOT)\n  return at(ROOT)\nend\nreturn other('b') .. other('c')\n",
        _part="local ROOT = 'a'\nlocal function at(place) return ROOT .. place end\n",
    )
    assert answer(text) == "abac"


def test_many_functions_are_cut_into_frames_that_capture_what_lua_can() -> None:
    parts = {"_p0": "local n = 0\nlocal function f0_0() n = n + 1 end\nlocal function f0_1() f0_0() end\n"}
    for part in range(1, 40):
        calls = f"  f{part - 1}_0()\n  f{part - 1}_1()\n"
        functions = [f"local function f{part}_{number}()\n  n = n + {number}\nend\n" for number in range(3)]
        parts[f"_p{part}"] = f"-- needs: p{part - 1}\nlocal function c{part}()\n{calls}end\nc{part}()\n" + "".join(
            functions
        )
    text = script("-- needs: p39\nf39_2()\nf39_2()\nreturn n\n", **parts)
    assert text.count("return (function()") >= 5
    assert answer(text) == 2 + 38 + 2 * 2


def test_a_function_that_uses_all_that_lua_allows_takes_no_other_in() -> None:
    values = [f"v{number}" for number in range(MOST_CAPTURED)]
    declared = "".join(f"local {name} = tonumber('1')\n" for name in values)
    half = "local function half()\n  return " + " + ".join(values[:30]) + "\nend\n"
    rest = "local function rest()\n  return half() + " + " + ".join(values[29:]) + "\nend\n"
    assert answer(script("-- needs: part\nreturn rest() + rest()\n", _part=declared + half + rest)) == 122


def test_each_line_says_where_it_is_from() -> None:
    files = all_lua_files()
    source = Assembler(NAMES, files, all_hooks()).script(Promote)
    assert len(source.lines) == source.text.count("\n")
    texts = {name: text.replace("redis.call", "redis_call").splitlines() for name, text in files.items()}
    seen = 0
    for text, line in zip(source.text.splitlines(), source.lines, strict=True):
        there = texts.get(line.file.removesuffix(".lua"), [])
        if len(text) > 30 and Counter(there)[text] == 1:
            assert there[line.number - 1] == text
            seen += 1
    assert seen > 100


@pytest.mark.slow
def test_the_scripts_make_few_functions_at_their_left_edge() -> None:
    assembler = Assembler(NAMES, all_lua_files(), all_hooks())
    for kind in all_scripts():
        assert chunk_of(assembler.script(kind).text).locals < 100, kind.name


@pytest.mark.parametrize("seed", range(40))
def test_no_program_does_anything_else_for_it(seed: int) -> None:
    """Programs of random functions in random parts; each call is noted in a list, which is the answer."""
    files = dict(_program(random.Random(seed)))
    whole = "".join(text for name, text in files.items())
    plain = answer(whole.replace("-- needs", "--").replace("redis.call", "redis['call']"))
    needed = {f"_{name}": text for name, text in files.items() if name != "write"}
    assert answer(script(files["write"], **needed)) == plain
    assert len(plain) > 20


def _program(draw: random.Random) -> Iterator[tuple[str, str]]:
    """Files by their names, each of which needs the one before it; together they are a program as they stand."""
    functions, values, before = ["note"], list[str](), "base"
    yield "base", "local noted = {}\nlocal function note(n)\n  noted[#noted + 1] = n % 97\n  return n % 97\nend\n"
    for part in range(draw.randint(2, 6)):
        text = f"-- needs: {before}\n"
        for number in range(draw.randint(1, 12)):
            name = f"{draw.choice('fgh')}{part}_{number}"
            match draw.randint(0, 4):
                case 0:
                    text += f"local {name} = {draw.randint(1, 9)}\n"
                    values.append(name)
                case 1:
                    text += f"local function {name}(n) return n * 2 + {draw.choice([*values, 'n'])} end\n"
                    functions.append(name)
                case _:
                    body = "".join(_use(draw, functions, values) for _ in range(draw.randint(1, 3)))
                    parameter = draw.choice(["n", "n", "n", *values[-1:]])
                    text += (
                        f"local function {name}({parameter})\n  local m = {parameter}\n{body}  return note(m)\nend\n"
                    )
                    functions.append(name)
        before = f"part{part}"
        yield before, text
    own = "".join(f"{draw.choice(functions)}({number})\n" for number in range(30))
    own = "\n".join(f"local _ = {line}" for line in own.splitlines())
    yield "write", f"-- needs: {before}\n{own}\nreturn table.concat(noted, ' ')\n"


def _use(draw: random.Random, functions: list[str], values: list[str]) -> str:
    function, inner = draw.choice(functions[-12:]), draw.choice(functions[-12:])
    lines: Mapping[int, str] = {
        0: f"  m = m + {function}(m)\n",
        1: f"  m = {function}({inner}(m % 7) + 1) % 1000\n",
        2: f"  {draw.choice(values)} = m % 11\n" if values else "",
        3: f"  if m % 3 == 0 then m = {function}(m) else m = m + 1 end\n",
    }
    return lines[draw.randint(0, 3)]
