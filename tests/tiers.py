"""Which tests `make test` has, and which are left to the long tier, `.ci/run`.

A matrix is held by a sample: of a test with several parameters `make test` has so many cases that each value of each
parameter is there. One that has a single long list of cases may say how many of them are enough: ``sample(cases, 8)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pytest
from hypothesis import settings

_Value: TypeAlias = tuple[tuple[str, ...], tuple[int, ...]]
"""Parameters, and what they are in a case: the very objects."""


def sample(cases: Iterable[Any], enough: int) -> list[Any]:
    """Cases for ``pytest.mark.parametrize``, of which ``enough``, from the first to the last, are in `make test`."""
    every = list(cases)
    kept = {round(place * (len(every) - 1) / max(enough - 1, 1)) for place in range(enough)}
    return [each if place in kept else _long(each) for place, each in enumerate(every)]


def examples(number: int) -> int:
    """How many examples Hypothesis draws for a test with a ``number`` of its own: that is for 100 of others, which the
    long tier draws."""
    return max(1, number * settings().max_examples // 100)


def mark_long(items: Sequence[pytest.Item]) -> None:
    """Mark the cases of matrices that show no value which another case does not show."""
    matrices: dict[str, list[pytest.Item]] = {}
    for item in items:
        if getattr(item, "callspec", None) is not None and not _elsewhere(item):
            matrices.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in matrices.values():
        kept = {id(case) for case in _enough(cases)}
        for case in cases:
            if id(case) not in kept:
                case.add_marker(pytest.mark.long)


def _enough(cases: Sequence[pytest.Item]) -> Iterable[pytest.Item]:
    """A case for each value: always the next one that has the most values which were not there."""
    values = [(case, _values(case)) for case in cases]
    missing = set[_Value]().union(*(has for _, has in values))
    while missing:
        case, has = max(values, key=lambda each: len(each[1] & missing))
        missing -= has
        yield case


def _values(case: pytest.Item) -> set[_Value]:
    """The value of each parameter; parameters that are declared together are one."""
    given: dict[str, object] = dict(case.callspec.params)  # type: ignore[attr-defined]
    together = [_names(mark.args[0]) for mark in case.iter_markers("parametrize")]
    alone = [(name,) for name in given if not any(name in names for names in together)]
    return {(names, tuple(id(given[name]) for name in names)) for names in (*together, *alone)}


def _names(declared: str | Sequence[str]) -> tuple[str, ...]:
    names = declared.split(",") if isinstance(declared, str) else declared
    return tuple(name.strip() for name in names)


def _elsewhere(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("chaos", "long"))


def _long(case: Any) -> Any:
    if isinstance(case, type(pytest.param())):
        return case._replace(marks=(*case.marks, pytest.mark.long))
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.long)
