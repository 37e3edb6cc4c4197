"""Mutants of the rounds over many shards and of their marks: each breaks one promise of ADR 0126, and the test that is
named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_ROUNDS: Final = "palaver/store/redis/rounds.py"
_BUSY: Final = "palaver/store/redis/busy.py"


def _mutant(name: str, file: str, old: str, new: str) -> TestedMutant:
    return TestedMutant(name, "tests/contract/test_rounds.py", Change(file, old, new))


MUTANTS: Final = by_name(
    _mutant("a silent sweeper that keeps its part", _ROUNDS, "if seconds <= SILENCE}", "if True}"),
    _mutant("a dead sweeper that is never forgotten", _ROUNDS, "if seconds > _FORGOTTEN]", "if False]"),
    _mutant("nobody looks twice", _ROUNDS, "heapq.nlargest(2, sharing", "heapq.nlargest(1, sharing"),
    _mutant("two have each shard", _ROUNDS, "if sweeper == best[0]:", "if True:"),
    _mutant("seats without number", _ROUNDS, "else len(others) < SEATS", "else True"),
    _mutant("who has no seat keeps it", _ROUNDS, "[:SEATS] if self._seated", "if self._seated"),
    _mutant("a mark is not heard", _ROUNDS, "self._busy_until[shard] = now + _BUSY_FOR", "pass"),
    _mutant("a mark for ever", _ROUNDS, "self._busy_until.get(shard, 0.0) > now]", "shard in self._busy_until]"),
    _mutant("only what is marked is seen", _ROUNDS, ", *self.seldom(visit, a_second)})", "})"),
    _mutant("all that is marked at once", _ROUNDS, ", int(_MOST / a_second))", ", len(self.shards))"),
    _mutant("the same shards each time", _ROUNDS, "self._last[visit] = some[-1]", "pass"),
    _mutant(
        "one that nobody answers has no part",
        _ROUNDS,
        "self._part = frozenset(self.shards)\n            self._seen_to",
        "self._part = frozenset()\n            self._seen_to",
    ),
    _mutant("a mark that is made once", _BUSY, "now < self._until.get(shard, 0.0)", "shard in self._until"),
    _mutant("a mark with each step", _BUSY, "self._until[shard] = now + MARKED_AGAIN", "self._until[shard] = now"),
)
