"""Mutants of what goes to the broker: each breaks one promise of ADR 0056, and the test that is named must say so.

    python -m tests.chaos.broker_mutants [NAME …]

They are played without a server: seconds for each.
"""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, play_named

_EVENTS: Final = "workers/gathered_events.py"


def _mutant(name: str, file: str, old: str, new: str) -> TestedMutant:
    tests = {_EVENTS: "test_gathered_events.py"}
    return TestedMutant(name, f"tests/unit/{tests[file]}", Change(file, old, new))


BROKER_MUTANTS: Final = {
    mutant.name: mutant
    for mutant in (
        _mutant(
            "events that are lost at a drain",
            _EVENTS,
            "            consumer.event_dispatcher.flush()",
            "            pass",
        ),
        _mutant(
            "events that are lost with a connection",
            _EVENTS,
            "_group_buffer[group] += events",
            "_group_buffer[group] += ()",
        ),
        _mutant(
            "events that wait for a timer that is gone",
            _EVENTS,
            "self._timer is None or self._timer.canceled",
            "self._timer is None",
        ),
        _mutant(
            "events that gather without a bound",
            _EVENTS,
            "send_soon, _TOGETHER",
            "send_soon, 1_000_000",
        ),
    )
}


if __name__ == "__main__":
    play_named(BROKER_MUTANTS)
