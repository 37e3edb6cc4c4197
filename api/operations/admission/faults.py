"""Faults of a request: found one by one, and raised together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

from palaver.errors import FieldError, Refused
from palaver.vocabulary.limits import limit_of

from .spec import UnknownName

_AGENT = "/agent"


def refuse(faults: Iterable[FieldError | UnknownName]) -> None:
    """Raise a problem if there is a fault. It looks for no more faults than the problem names."""
    first = islice(faults, limit_of("faults"))
    if named := [fault.as_fault() if isinstance(fault, UnknownName) else fault for fault in first]:
        raise Refused.of_faults(named)


@contextmanager
def at_the_root() -> Iterator[None]:
    """Name the places of faults as they are in a body that is an agent itself."""
    try:
        yield
    except Refused as refused:
        if not refused.faults:
            raise
        moved = [replace(fault, pointer=fault.pointer.removeprefix(_AGENT)) for fault in refused.faults]
        raise Refused.of_faults(moved) from None
