"""Mutants of statistics: each breaks one promise of ADR 0042, and the test that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_LUA: Final = "features/statistics/lua"
_FOLD: Final = f"{_LUA}/fold_journal.lua"
_STORE: Final = "features/statistics/statistics.py"
_CONTRACT: Final = "features/statistics/tests/contract/test_statistics.py"


def _mutant(name: str, file: str, old: str, new: str, test: str = _CONTRACT) -> TestedMutant:
    return TestedMutant(name, test, Change(file, old, new))


MUTANTS: Final = by_name(
    _mutant("a line that is lost", _STORE, "for _, fields in entries)", "for _, fields in entries[1:])"),
    _mutant("lines that count twice", _FOLD, "redis.call('XTRIM', keys.journal, 'MINID', args.next)\n", ""),
    _mutant("a fold over another's", _FOLD, "if not oldest or oldest[1] ~= args.first", "if not oldest"),
    _mutant("another's line", f"{_LUA}/_journal.lua", "NOW) .. OWNER .. ' ' .. what", "NOW) .. ' ' .. what"),
    _mutant("what is anothers", _STORE, "if reaches(tag) else ()", "if tag else ()"),
    _mutant("the span of the fold", _STORE, "window.number(at)", "window.number(at + 3600000)"),
    _mutant("a span that never passes", _STORE, "if number == place[2]:", "if number <= place[2]:"),
    _mutant("usage of the lease before", f"{_LUA}/_note_lease.lua", "used_under_it = ''\n", ""),
    _mutant("windows that are too long", _STORE, "- window.spans < number", "- window.spans <= number"),
    _mutant(
        "an erasure that forgets them",
        "features/statistics/belongings.py",
        "return await fold_some(redis, scripts, shard)",
        "return False",
        "features/offboarding/tests/contract/test_erasure.py",
    ),
)
