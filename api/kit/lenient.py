"""Bodies as clients of others send them: fields that are unknown here are left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Final

from pydantic import ConfigDict, ValidationError, model_validator

from palaver.errors import FieldError, Refused
from palaver.schemas.fields import DataModel

_LONGEST_NAME: Final = 64
_NOWHERE: Final[Mapping[str, str]] = MappingProxyType({})


@contextmanager
def refusing(place: str = "", named: Mapping[str, str] = _NOWHERE) -> Iterator[None]:
    """Refuse a body around the making of a value of ours: each fault has its place in the body, where a field may have
    another name.

    Raises:
        Refused: everything that does not fit.
    """
    try:
        yield
    except ValidationError as error:
        misfits = error.errors(include_url=False, include_input=False, include_context=False)
        faults = [
            FieldError(place + _pointer(misfit["loc"], named), misfit["type"], _sentence(misfit["msg"]))
            for misfit in misfits
        ]
        raise Refused.of_faults(faults) from None


@contextmanager
def refusing_at(place: str) -> Iterator[None]:
    """Refuse a value of ours that a body has in another form: what does not fit stands at ``place``.

    Raises:
        Refused: the first thing that does not fit.
    """
    try:
        yield
    except ValidationError as error:
        misfit = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise Refused.at(place, _sentence(misfit["msg"])) from None


def _pointer(location: tuple[int | str, ...], named: Mapping[str, str]) -> str:
    # What is wrong with a value as a whole has no place in it.
    first, *rest = map(str, location or ("",))
    # Names that clients have chosen end it, if they are long.
    names = [named.get(first, first), *takewhile(lambda name: len(name) <= _LONGEST_NAME, rest)]
    return "".join(f"/{name}" for name in names if name)


def _sentence(message: str) -> str:
    return message.replace("Input should be", "must be").replace("Value error, ", "")


class LenientModel(DataModel):
    """An object whose unknown fields are ignored."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_the_rest(cls, value: Any) -> Any:
        # Bodies are read with all unknown fields forbidden, whatever a model says.
        if not isinstance(value, dict):
            return value
        names = {field.alias or name for name, field in cls.model_fields.items()}
        return {name: field for name, field in value.items() if name in names}
