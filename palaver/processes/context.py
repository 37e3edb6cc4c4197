"""Values of context variables that hold within a block."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Generic, TypeVar

T = TypeVar("T")


class Holding(Generic[T]):
    """Within its block, which it is entered for once, a variable has this value. Each request enters several: as
    generators they would take three times as long."""

    __slots__ = ("_before", "_value", "_variable")
    _before: Token[T]

    def __init__(self, variable: ContextVar[T], value: T) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> None:
        self._before = self._variable.set(self._value)

    def __exit__(self, *_: object) -> None:
        self._variable.reset(self._before)
