"""The places of faults in a body that has a submission within."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from palaver.errors import Refused


@contextmanager
def below(pointer: str, places: Mapping[str, str] | None = None) -> Iterator[None]:
    """Name the places of faults as they are in a body that has the whole of it at ``pointer``, or what is at one of
    ``places`` elsewhere."""
    try:
        yield
    except Refused as refused:
        if not refused.faults:
            raise
        moved = [replace(fault, pointer=f"{pointer}{_moved(fault.pointer, places or {})}") for fault in refused.faults]
        raise Refused.of_faults(moved) from None


def _moved(pointer: str, places: Mapping[str, str]) -> str:
    for before, behind in places.items():
        if pointer == before or pointer.startswith(f"{before}/"):
            return behind + pointer.removeprefix(before)
    return pointer
