"""``dataclass`` as Python has it, but for when its methods are written: with the first instance.

Python writes five functions for each class when that is imported, as text that it compiles. A worker imports 250 such
classes and makes instances of a third of them; all of them were an eighth of the CPU of its start.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar

C = TypeVar("C", bound=type)
_FIELDS: Final = "__dataclass_fields__"
_NO_FIELDS: Final = ("ClassVar[", "ClassVar", "KW_ONLY")
_writing: Final = RLock()

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, slots: bool, **options: bool) -> Callable[[C], C]:
        """As Python's with ``slots``, in modules that postpone annotations."""
        assert slots, "a class without slots is made by Python's"
        return lambda cls: _slotted(cls, options)


def postpone(cls: type, **options: bool) -> None:
    """Make a class without slots a dataclass once it is needed. The ``__init__`` of its base is `first`."""
    fields = _Fields(cls, options)
    fields.__set_name__(cls, _FIELDS)
    setattr(cls, _FIELDS, fields)


def first(self: Any, *values: Any, **named: Any) -> None:
    """Make the first instance of a class."""
    dataclasses.fields(self)
    self.__init__(*values, **named)


class _Fields:
    """Stands for the fields of a class, and for its methods, until one asks for them."""

    def __init__(self, plain: type, options: Mapping[str, bool]) -> None:
        self._plain = plain
        self._options = options

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner

    def __get__(self, instance: object, owner: type) -> Any:
        self.write()
        return getattr(owner, _FIELDS)

    def write(self) -> None:
        """Have Python write the methods for the class as it was without slots, and give them to the one that has them.

        What makes instances comes last: until then another thread waits for this one.
        """
        with _writing:
            if vars(self._owner)[_FIELDS] is not self:
                return
            before = {**vars(self._plain)}
            written = vars(dataclasses.dataclass(**self._options)(self._plain))
            if self._plain is self._owner:
                return
            of = [name for name, value in written.items() if before.get(name, _FIELDS) is not value]
            for name in sorted(of, key=(_FIELDS, "__init__").__contains__):
                if name not in written[_FIELDS]:
                    setattr(self._owner, name, written[name])


def _slotted(cls: C, options: Mapping[str, bool]) -> C:
    """Make the class anew, with slots for its fields."""
    of = [name for name, kind in inspect.get_annotations(cls).items() if not kind.startswith(_NO_FIELDS)]
    inherited = {name for base in cls.__mro__[1:-1] for name in vars(base).get("__slots__", ())}
    body = {name: value for name, value in vars(cls).items() if name not in (*of, "__dict__", "__weakref__")}
    body |= {
        "__slots__": tuple(name for name in of if name not in inherited),
        "__init__": first,
        "__getstate__": _state,
        "__setstate__": _restore,
        _FIELDS: _Fields(cls, options),
    }
    made: C = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
