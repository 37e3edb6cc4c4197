"""Spans of time, and time zones."""

from __future__ import annotations

import re
from typing import Annotated, Final

Seconds = Annotated[float, "seconds"]
"""A time in seconds. Scripts count in milliseconds: the wire converts it (`palaver.store.scripting.contracts.wire`)."""
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


_NO_PLACE: Final = re.compile(r"(?:posix|right)/.*|Factory|localtime|posixrules", re.IGNORECASE)
"""Files beside those of time zones: the zone of a machine, none at all, and zones whose clocks count leap seconds."""


def names_a_zone(text: str) -> bool:
    """Tell whether the name of a file of the database of time zones is that of a zone, as IANA has them."""
    return _NO_PLACE.fullmatch(text) is None


def in_seconds(text: str) -> float:
    """``90``, ``15m``, ``12h``, ``3d`` in seconds. Raises ValueError for what is no such time."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None:
        raise ValueError(f"{text[:80]!r} is not a time such as 90s, 15m, 12h or 3d")
    return float(match[1]) * _UNITS[match[2]]
