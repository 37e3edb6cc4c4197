"""The check of the Lua scripts finds what it says that it finds."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from deploy.lua_check import MOST_LOCALS, chunk_of, faults
from palaver.config.settings import Settings
from palaver.store.redis.keys import Key
from palaver.store.scripting.additions import all_hooks, all_lua_files, all_scripts
from palaver.store.scripting.assembly import Assembler
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.steps import Renew
from palaver.store.scripting.scripts import VERSION
from palaver.store.scripting.shared_names import ScriptSettings, shared_names

NAMES = shared_names(ScriptSettings.of(Settings()), VERSION)
PARTS = {
    "_clock": "local NOW = tonumber(redis.call('TIME')[1])\n",
    "_note": "-- needs: clock\nlocal function note(text) redis.call('SET', keys.place, text .. NOW) end\n",
}
SCRIPT = """-- needs: note
note(args.text)
if args.often then return reply.written { times = 1, more = nil } end
return reply.nothing()
"""


@dataclass(frozen=True, slots=True)
class Written:
    times: int
    more: str | None


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


class Write(Script[Written | Nothing]):
    place: Key
    text: str
    often: bool


def found(script: str = SCRIPT, **parts: str) -> list[str]:
    return sorted(set(faults([Write], NAMES, {**PARTS, **parts, "write": script})))


@pytest.mark.chaos
def test_the_scripts_have_no_faults() -> None:
    assert list(faults(all_scripts(), NAMES, all_lua_files(), all_hooks())) == []


def test_a_script_without_faults_has_none() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("note(args", "notes(args", "write.lua:2: notes is not defined"),
        ("note(args.text)", "total = args.text note(total)", "write.lua:2: total is not defined"),
        ("note(args", "os.exit() note(args", "write.lua:2: os is not defined"),
        ("args.text", "args.test", "write.lua: args.test is not declared"),
        ("args.often", "true", "write.lua: args.often is declared, and not used"),
        ("args.text", "ARGV[1] .. args.text", "write.lua: KEYS and ARGV have names: keys.x, args.x"),
        ("args.text", "args.text .. keys.places", "write.lua: keys.places is not declared"),
        ("reply.nothing()", "reply.nothin()", "write.lua: reply.nothin is not declared"),
        ("return reply.nothing()\n", "", "write.lua: reply.nothing is declared, and not given"),
        ("times = 1", "time = 1", "write.lua: reply.written has no time"),
        ("times = 1, ", "", "write.lua: reply.written needs times"),
        ("-- needs: note\n", "", "write.lua:1: note is not defined"),
        ("-- needs: note\n", "-- needs: note\nlocal function spare() end\n", "write.lua: spare is never called"),
        ("if args.often then", "if args.often", "write.lua:3: "),
    ],
)
def test_a_fault_is_found(right: str, wrong: str, said: str) -> None:
    assert SCRIPT.count(right) == 1
    assert any(each.startswith(said) for each in found(SCRIPT.replace(right, wrong))), found(
        SCRIPT.replace(right, wrong)
    )


def test_a_batch_is_read_by_the_names_of_its_fields() -> None:
    files, rest = all_lua_files(), "received, characters, quiet_ms, left_ms"
    parts = {name: files[name] for name in Assembler(NAMES, files).parts("renew")}
    renew = files["renew"].replace("step, fence, received", "fence, step, received")
    assert renew != files["renew"]
    # Of its parts it does not call all.
    said = [each for each in faults([Renew], NAMES, {**parts, "renew": renew}) if "is never called" not in each]
    assert said == [f"renew.lua: it is for i, run, steps, run_id, step, fence, {rest} in args.leases"]


def test_a_part_says_itself_what_it_needs() -> None:
    note = PARTS["_note"].replace("-- needs: clock\n", "")
    assert found(SCRIPT.replace("needs: note", "needs: clock, note"), _note=note) == ["_note.lua:1: NOW is not defined"]


def test_a_part_that_nobody_needs_is_found() -> None:
    assert found(_spare="local SPARE = 1\n") == ["_spare.lua: no script needs it"]


def test_parts_that_need_each_other_are_refused() -> None:
    with pytest.raises(RecursionError, match="_clock needs _note needs _clock"):
        found(SCRIPT.replace("note\n", "clock\n", 1), _clock="-- needs: note\n")


def test_a_name_that_python_does_not_know_is_refused() -> None:
    with pytest.raises(LookupError, match=re.escape("write.lua:2: Python knows no RunStatus.PAUSING")):
        found(SCRIPT.replace("args.text", "RunStatus.PAUSING"))


def test_a_name_in_a_text_or_a_comment_is_left_alone() -> None:
    assert found(SCRIPT.replace("note(args.text)", "note('RunStatus.NONE ' .. args.text) -- RunStatus.NONE")) == []


def test_the_globals_of_functions_within_functions_are_seen() -> None:
    inner = "local x = 1\nreturn function()\n  return function() there = here + x end\nend\n"
    assert sorted(chunk_of(inner).globals) == [("here", 3), ("there", 3)]


def test_locals_are_counted_as_lua_does() -> None:
    text = "local a, b\ndo local c end\nlocal function d(e) local f end return d\n"
    assert chunk_of(text).locals == 3


def test_a_script_with_too_many_locals_is_refused() -> None:
    have = chunk_of(Assembler(NAMES, {**PARTS, "write": SCRIPT}).script(Write).text).locals
    most = "".join(f"local x{i} = {i}\n" for i in range(MOST_LOCALS - have)) + SCRIPT
    assert found(most) == []
    (said,) = found("local y\n" + most)
    assert said.startswith(f"write.lua: {MOST_LOCALS + 1} locals at once, of at most {MOST_LOCALS}")
