"""Classes whose methods are written with the first instance are as Python's own."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from dataclasses import field
from typing import ClassVar

import pytest

from palaver.late import dataclass


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of money."""

    UNITS: ClassVar[int] = 100

    of: int
    parts: list[int] = field(default_factory=list)
    currency: str = "EUR"


@dataclass(frozen=True, slots=True)
class Debt(Sum):
    """What one owes."""

    currency: str = "CHF"
    to: str = "a bank"


@dataclass(slots=True)
class Counted:
    """What was counted."""

    number: int = 0


class Loan(Debt):
    """A class that is no dataclass itself."""


def _new() -> type[Sum]:
    @dataclass(frozen=True, slots=True)
    class New(Sum):
        to: str = "you"

    return New


def test_they_are_made_with_defaults_by_place_and_by_name() -> None:
    assert (Debt(1).currency, Debt(1, to="me").to, Debt(1, [2], "GBP").currency) == ("CHF", "me", "GBP")
    assert repr(Loan(3)) == "Loan(of=3, parts=[], currency='CHF', to='a bank')"
    assert Sum(1).parts is not Sum(1).parts
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'of'"):
        Sum()  # type: ignore[call-arg]


def test_they_are_equal_by_their_fields_and_within_their_class() -> None:
    assert Sum(1) == Sum(1, [], "EUR") != Sum(2)
    assert Sum(1, [], "CHF") != Debt(1)
    assert Counted(1) == Counted(1)


def test_what_is_frozen_is_so_and_no_other_attribute_is_taken() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sum(1).of = 2  # type: ignore[misc]
    counted = Counted()
    counted.number += 1
    with pytest.raises(AttributeError):
        counted.nubmer = 2  # type: ignore[attr-defined]
    assert counted == Counted(1)
    assert not hasattr(counted, "__dict__")


def test_what_python_offers_for_its_own_takes_them() -> None:
    debt = Debt(1, [2])
    assert dataclasses.replace(debt, of=3) == Debt(3, [2])
    assert dataclasses.asdict(debt) == {"of": 1, "parts": [2], "currency": "CHF", "to": "a bank"}
    assert copy.deepcopy(debt) == pickle.loads(pickle.dumps(debt)) == debt
    match debt:
        case Debt(number, parts):
            assert (number, parts) == (1, [2])


def test_fields_are_there_before_any_instance() -> None:
    new = _new()
    assert dataclasses.is_dataclass(new)
    assert [each.name for each in dataclasses.fields(new)] == ["of", "parts", "currency", "to"]
    assert new(1).UNITS == 100


def test_threads_that_make_the_first_instance_at_once_get_one_each() -> None:
    for _ in range(50):
        new, begin = _new(), threading.Barrier(4)
        made: list[Sum] = []

        def make(new: type[Sum] = new, begin: threading.Barrier = begin, made: list[Sum] = made) -> None:
            begin.wait()
            made.append(new(1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [new(1)] * 4
