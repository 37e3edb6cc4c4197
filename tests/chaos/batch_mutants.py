"""Mutants of how a worker takes deliveries and asks Redis: each breaks one promise of ADR 0020 or 0002, and the test
that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_READING: Final = "workers/broker/reading.py"
_POOL: Final = "workers/broker/pool.py"
_LINE: Final = "palaver/store/redis/shared_client.py"
_TESTS: Final = {
    _READING: "tests/contract/test_reading.py",
    _POOL: "tests/unit/test_starting_jobs.py",
    _LINE: "tests/contract/test_shared_client.py",
}
_ASKED: Final = "            question = self._waiting[0]\n"


def _mutant(name: str, file: str, old: str, new: str, test: str = "") -> TestedMutant:
    return TestedMutant(name, test or _TESTS[file], Change(file, old, new))


MUTANTS: Final = by_name(
    _mutant("a handful that ignores the room", _READING, "min(free, share, _BATCH)", "min(share, _BATCH)"),
    _mutant("a handful that leaves others no share", _READING, "min(free, share, _BATCH)", "min(free, _BATCH)"),
    _mutant("a handful without a bound", _READING, "min(free, share, _BATCH)", "min(free, share)"),
    _mutant(
        "one that is no delivery takes the rest along",
        _READING,
        "        if not messages:\n",
        "        if not messages or len(messages) < len(raws):\n",
    ),
    _mutant(
        "a handful of which one is handed over",
        _READING,
        "        for message in messages:\n",
        "        for message in messages[:1]:\n",
    ),
    _mutant("recovered after ordinary", _READING, '*keys, "RIGHT"', '*reversed(keys), "RIGHT"'),
    _mutant("the newest first", _READING, '*keys, "RIGHT"', '*keys, "LEFT"'),
    _mutant(
        "any error is a matter of the server's version",
        _READING,
        "any(refusal in str(error) for refusal in _REFUSALS)",
        "_REFUSALS",
    ),
    _mutant(
        "headers that are no object",
        _READING,
        '{**message["headers"]}',
        'dict(message["headers"])',
        "tests/unit/test_wire.py",
    ),
    _mutant(
        "a starting job forgotten",
        _POOL,
        "        while self._starting:\n",
        "        if self._starting:\n",
    ),
    _mutant(
        "the last to come begins first",
        _POOL,
        "self._starting.popleft()",
        "self._starting.pop()",
    ),
    _mutant(
        "an answer given to the wrong asker",
        _LINE,
        "self._waiting.append(",
        "self._waiting.appendleft(",
        f"{_TESTS[_LINE]}::test_who_goes_away_takes_no_answer_and_no_connection_along",
    ),
    _mutant(
        "an answer of who went away given to the next",
        _LINE,
        _ASKED,
        f"            while self._waiting[0].done.cancelled():\n                self._waiting.popleft()\n{_ASKED}",
    ),
    _mutant(
        "patience counted from the asking although answers come",
        _LINE,
        "max(self._waiting[0].at, self._heard_at) +",
        "self._waiting[0].at +",
    ),
    _mutant(
        "a long question before the renewal of a lease", _LINE, "_LONG: Final = 64 * KIB", "_LONG: Final = 1 << 40"
    ),
    _mutant(
        "all wait for who waits for a replica",
        _LINE,
        'frozenset({"WAIT", "WAITAOF"})',
        "frozenset[str]()",
    ),
    _mutant(
        "connections that were cut with the shared one are waited for",
        _LINE,
        "            # Before those whose questions were on it ask there: a renewal has no time to wait twice.\n"
        "            await self.connection_pool.forget_idle()\n",
        "",
    ),
    _mutant(
        "that the server is not ready is told as an answer",
        _LINE,
        "return None if any(isinstance(answer, ConnectionError) for answer in answers) else answers",
        "return answers",
    ),
)
