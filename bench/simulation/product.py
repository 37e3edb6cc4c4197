"""Numbers of the product that only its scripts know, read from these."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from palaver.config.settings import Settings
from palaver.store.scripting.assembly import lua_files

_LOCALS: Final = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = ([0-9]+(?:, [0-9]+)*)$", re.MULTILINE)


@cache
def _numbers() -> dict[tuple[str, str], int]:
    return {
        (part, name): int(value)
        for part, text in lua_files().items()
        for names, values in _LOCALS.findall(text)
        for name, value in zip(names.split(", "), values.split(", "), strict=True)
    }


def script_number(part: str, name: str) -> int:
    """A number that a part of the scripts gives a name."""
    return _numbers()[part, name]


def default(setting: str) -> float:
    """The default of a setting."""
    return float(Settings.model_fields[setting].default)


FIRST_SECOND: Final = script_number("_ramp", "FIRST_SECOND")
"""Calls that may begin in the first second after a cool-down or an outage; twice as many in each second after."""
RAMP: Final = script_number("_ramp", "RAMP") / 1000
SLACK: Final = script_number("_queue", "SLACK") / 1000
"""A call that asks at its turn may be so far ahead of it: others may have taken it."""
FAILURES: Final = script_number("_circuit", "FAILURES")
"""Failures without an answer between that open the circuit."""
ASK_AGAIN: Final = script_number("_breaker", "ASK_AGAIN") / 1000
"""Who waits in an outage asks again after so long, and up to as much later."""
ON_ITS_WAY: Final = script_number("_in_place", "ON_ITS_WAY") / 1000
"""A step that is ready for longer waits for a worker, and nobody goes on in place."""
STANDS_IN_LINE: Final = script_number("_deliver", "STANDS_IN_LINE")
"""Every so many model calls a run stands in line with those that have not begun."""
LEASE: Final = default("lease_seconds")
PROBE_INTERVAL: Final = default("probe_interval")
IN_PLACE_STEPS: Final = int(default("in_place_steps"))
IN_PLACE_SECONDS: Final = default("in_place_seconds")
MAX_LOSSES: Final = int(default("max_losses"))
