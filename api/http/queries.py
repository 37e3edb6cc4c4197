"""Query parameters, read strictly: one that is unknown, out of range, or doubled without being a list, is an error that
names it. Where a dialect's servers take any, unknown ones are left out."""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from typing import Annotated, Final, TypeVar, get_origin
from urllib.parse import parse_qsl

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.requests import Request

from palaver.errors import FieldError, Refused
from palaver.schemas.fields import DataModel
from palaver.vocabulary.limits import count_exceeded, limit_of
from palaver.vocabulary.names import did_you_mean

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


class Query(DataModel):
    """The parameters of one route."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AnyQuery(Query):
    """The parameters of one route; others are ignored."""

    model_config = ConfigDict(extra="ignore")


def _digits(text: object) -> object:
    if isinstance(text, str) and not _NUMBER.fullmatch(text):
        raise ValueError("must be a whole number")
    return text


Number = Annotated[int, BeforeValidator(_digits)]
"""Digits and nothing else: the signs, underscores and other scripts that ``int`` takes are typing errors."""
MaybeSequence = Annotated[int, Field(ge=0, le=2**53), BeforeValidator(_digits)] | None
"""The number of an event of a stream, or none. The bounds stand inside: beside a null, pydantic gives the document
others than JSON Schema has."""

FARTHEST: Final = 10**13
"""The largest number of an event, or position in a log, that one may ask for: scripts write no longer one in full."""

Q = TypeVar("Q", bound=Query)


def moment(text: str) -> datetime:
    """Read a time in any form of ISO 8601.

    Raises:
        ValueError: it is none, in a sentence.
    """
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z (in a URL, write + as %2B)") from None


def read_query(request: Request, model: type[Q]) -> Q:
    """Return the query parameters as a ``model``.

    Raises:
        Refused: a parameter does not fit.
    """
    query = request.scope["query_string"]
    usual: Q | None = None if query else _usual(model)
    if usual is not None:
        return usual
    parameters: dict[str, str] = {}
    for name, value in _pairs(query):
        if name not in model.model_fields:
            if model.model_config["extra"] == "ignore":
                continue
            known = ", ".join(model.model_fields) or "none"
            hint = did_you_mean(name, model.model_fields) or f"; there are: {known}"
            shown = name if _NAME.fullmatch(name) else ""
            raise Refused.of_faults([FieldError(f"?{shown}", "unknown_parameter", f"is not known here{hint}")])
        if name in parameters and not is_list(model, name):
            raise Refused.of_faults([FieldError(f"?{name}", "duplicate_parameter", "is given twice")])
        # Clients write a list as `name=a,b` or as `name=a&name=b`.
        parameters[name] = f"{parameters[name]},{value}" if name in parameters else value
    try:
        return model.model_validate(parameters)
    except ValidationError as error:
        faults = [
            FieldError(
                f"?{misfit['loc'][0]}" if misfit["loc"] else "?",
                misfit["type"],
                misfit["msg"].replace("Value error, ", "").replace("Input should be", "must be"),
            )
            for misfit in error.errors(include_url=False, include_input=False)
        ]
        raise Refused("validation_error", faults=faults) from None


@cache
def _usual(model: type[Q]) -> Q | None:
    """The query of a request without parameters; None if it has to have some."""
    try:
        return model.model_validate({})
    except ValidationError:
        return None


def is_list(model: type[BaseModel], name: str) -> bool:
    """Tell whether a parameter has several values: with commas between them, or in several parameters of that name."""
    return get_origin(model.model_fields[name].annotation) in (tuple, dict)


def _pairs(query: bytes) -> list[tuple[str, str]]:
    if query.count(b"&") >= limit_of("parameters"):
        count_exceeded("parameters")
        raise Refused("malformed_request", f"At most {limit_of('parameters')} parameters.")
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise Refused("malformed_request", "The query string cannot be read.") from None
