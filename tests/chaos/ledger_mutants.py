"""Mutants of the ledger of usage: each breaks one promise of ADR 0042, and the test that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_USAGE: Final = "palaver/store/scripting/lua/_usage.lua"
_LEDGER: Final = "palaver/store/scripting/lua/_ledger.lua"
_READER: Final = "palaver/store/reading/usage_ledger.py"
_CONTRACT: Final = "tests/contract/test_usage_ledger.py"


def _mutant(name: str, file: str, old: str, new: str) -> TestedMutant:
    return TestedMutant(name, _CONTRACT, Change(file, old, new))


MUTANTS: Final = by_name(
    _mutant(
        "a call that is charged twice",
        _LEDGER,
        "amounts[#amounts + 1] = spent",
        "amounts[#amounts + 1], amounts[1] = spent, 2",
    ),
    _mutant(
        "what was handed back for nothing",
        "palaver/store/scripting/lua/_verdict.lua",
        "  count_usage(args.used, step, 0, {})\n",
        "",
    ),
    _mutant(
        "an unknown price that is none",
        _USAGE,
        "columns[#columns + 1] = Ledger.UNPRICED",
        "columns[#columns + 1] = 'cost'",
    ),
    _mutant(
        "another's key",
        _LEDGER,
        "SUBMITTER and (SUBMITTER:match('^([%w_.-]+)/') or SUBMITTER) or Ledger.NONE",
        "Ledger.NONE",
    ),
    _mutant("a day without an end of rows", _LEDGER, "if rows > Limit.USAGE_ROWS then", "if false then"),
    _mutant("a ledger that stays for ever", _LEDGER, "if rows == 1 then", "if rows == 0 then"),
    _mutant("the day after", _LEDGER, "math.floor(NOW / 86400000)", "math.ceil(NOW / 86400000)"),
    _mutant("the first shard alone", _READER, "all_shards(settings.shards)", "all_shards(settings.shards)[1:]"),
)
