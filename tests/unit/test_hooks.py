"""Parts of features in scripts of the core: they stand at their places, and nothing is left where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import lupa.lua51  # type: ignore[import-untyped]
import pytest

from deploy.lua_check import faults_of_core
from palaver.feature import Feature, holding, is_set, seeing
from palaver.store.scripting.additions import all_hooks
from palaver.store.scripting.assembly import Assembler

CORE = {
    "end": """-- needs: kept
local function ended(status)
  local kept = read({ 'parent', hook.run_ended })
  -- hook: run_ended kept[2]
  return told
end
return ended('over')
""",
    "_kept": "local told = ''\nlocal function read(names) return names end\n",
    "_tell": "-- needs: words\n-- reads: mark\nlocal status = word(status)\ntold = told .. status .. field.mark\n",
    "_words": "local function word(text) return text .. '!' end\n",
    "_again": "-- reads: seal, mark\ntold = told .. ' ' .. status .. field.seal .. field.mark\n",
}


def text(hooks: Mapping[str, list[str]], **more: str) -> str:
    return Assembler({}, {**CORE, **more}, hooks).alone("end").text


def answer(text: str) -> Any:
    return lupa.lua51.LuaRuntime().execute(text)


def test_parts_stand_at_their_place_with_names_of_their_own_and_what_they_read() -> None:
    assert answer(text({"run_ended": ["_tell"]})) == "over!mark"
    assert answer(text({"run_ended": ["_tell", "_again"]})) == "over!mark oversealmark"


def test_nothing_is_left_of_a_place_without_a_part() -> None:
    plain = {
        name: CORE[name].replace(", hook.run_ended", "").replace("  -- hook: run_ended kept[2]\n", "") for name in CORE
    }
    assert text({}) == Assembler({}, plain).alone("end").text
    assert answer(text({})) == ""


def test_a_line_says_which_part_it_is_of() -> None:
    source = Assembler({}, CORE, {"run_ended": ["_again"]}).alone("end")
    (line,) = (line for line, text in zip(source.lines, source.text.splitlines(), strict=True) if "seal" in text[:40])
    assert line == ("end.lua", 3)
    (line,) = (line for line, text in zip(source.lines, source.text.splitlines(), strict=True) if "' '" in text)
    assert line == ("_again.lua", 2)


def test_a_field_that_is_not_read_is_refused() -> None:
    with pytest.raises(LookupError, match=r"_odd.lua:2: field.seal is not read"):
        text({"run_ended": ["_odd"]}, _odd="-- reads: mark\ntold = field.seal\n")


def test_a_place_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "palaver.store.scripting.additions.features", lambda: {"notes": Feature("notes", hooks={"run_begun": "note"})}
    )
    with pytest.raises(ValueError, match="the feature notes has a part at run_begun: there are run_submitted"):
        all_hooks.__wrapped__()


def test_what_only_takes_note_holds_up_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Feature("notes", hooks={"run_ended": "note"})
    installed = {"notes": notes}
    for module in ("palaver.feature", "palaver.store.scripting.additions"):
        monkeypatch.setattr(f"{module}.features", lambda: installed)
    assert seeing() == {"notes"}
    assert all_hooks.__wrapped__() == {"run_submitted": ["_show_to_notes"], "run_ended": ["_note"]}
    installed["notes"] = replace(notes, may_miss=True)
    assert seeing() == frozenset()
    assert all_hooks.__wrapped__() == {"run_ended": ["_note"]}


def test_the_check_knows_the_places() -> None:
    lua = {"end": CORE["end"].replace("run_ended", "run_over")}
    found = {*faults_of_core([], {}, lua)}
    assert {"run_over is no place of PLACES", "no script has the place run_ended"} <= found


def test_a_feature_with_a_switch_does_nothing_where_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Feature("notes", hooks={"run_ended": "note"}, switch="ANY_NOTES_URL", holds=True)
    for module in ("palaver.feature", "palaver.store.scripting.additions"):
        monkeypatch.setattr(f"{module}.features", lambda: {"notes": notes})
    assert (seeing(), all_hooks.__wrapped__(), holding()) == (frozenset(), {}, False)
    is_set.cache_clear()
    monkeypatch.setenv("ANY_NOTES_URL_FILE", "/run/secrets/notes")
    assert seeing() == {"notes"}
    assert holding()
    assert all_hooks.__wrapped__() == {"run_submitted": ["_show_to_notes"], "run_ended": ["_note"]}
