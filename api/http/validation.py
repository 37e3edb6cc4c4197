"""Validation errors of pydantic, in our words, without the values that the client sent."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from palaver.config.providers import Provider, example_model
from palaver.errors import FieldError, Refused
from palaver.schemas.actions import ToolPattern
from palaver.schemas.fields import AgentReference, ModelName, Tag, ToolName
from palaver.schemas.json_pointers import Path, pointer
from palaver.vocabulary.limits import count_exceeded, limit_of
from palaver.vocabulary.names import did_you_mean

M = TypeVar("M", bound=BaseModel)

_WORDS: Final = (
    ("Value error, ", ""),
    ("Input should be a valid array", "must be a list"),
    ("Input should be", "must be"),
    ("String should", "must"),
    ("Value should", "must"),
    ("Tuple should", "must"),
    ("Dictionary should", "must"),
    (" after validation", ""),
    ("Field required", "is required"),
    ("Extra inputs are not permitted", "is not a field here"),
)
_MUST_BE: Final = "must be "


def _pattern(name: object) -> str:
    pattern: str = get_args(name)[1].pattern
    return pattern


_MODEL: Final = _pattern(ModelName)
_NO_MESSAGES: Final = frozenset({"system", "developer"})
"""Roles that others know and a conversation has not."""
_PATTERNS: Final[Mapping[str, str]] = {
    _pattern(ToolName): "must be a tool's name: letters, digits, _ and -, at most 64",
    _pattern(ToolPattern): "must be a tool's name, or a glob such as send_*",
    _pattern(AgentReference): "must be the name of an agent on the server, such as support or support@7",
    _pattern(Tag): "must be 1 to 64 characters without spaces",
}


def validate(model: type[M], raw: bytes, value: Any, providers: Mapping[str, Provider]) -> M:
    """Return the body ``raw``, parsed before as ``value``, as a ``model``; ``providers`` are those that examples are
    of.

    Raises:
        Refused: ``validation_error`` with a fault for each field that does not fit.
    """
    try:
        return model.model_validate_json(raw, extra="forbid")
    except ValidationError as error:
        raise Refused.of_faults(faults_of(error, model, value, providers)) from None


def faults_of(
    error: ValidationError, model: type[BaseModel], value: Any, providers: Mapping[str, Provider]
) -> list[FieldError]:
    """Return the faults of ``value``, which was to be a ``model``: as far as it is looked at."""
    looked = limit_of("faults_found")
    if error.error_count() > looked:
        count_exceeded("faults_found")
    errors = error.errors(include_url=False, include_input=False)
    return _without_doubles([_fault(model, value, details, providers) for details in islice(errors, looked)])


def _fault(model: type[BaseModel], value: Any, error: Any, providers: Mapping[str, Provider]) -> FieldError:
    kind, message = error["type"], error["msg"]
    path = _path(error["loc"], value, missing=kind == "missing")
    for theirs, ours in _WORDS:
        message = message.replace(theirs, ours)
    if kind == "string_pattern_mismatch" and error["ctx"]["pattern"] == _MODEL:
        message = f"must be provider/name, such as {example_model(providers)}"
    elif kind == "string_pattern_mismatch":
        message = _PATTERNS.get(error["ctx"]["pattern"], "is not written as it must be")
    elif kind in {"datetime_parsing", "datetime_from_date_parsing"}:
        kind, message = "datetime_parsing", "must be a time, such as 2026-11-26T12:00:00Z"
    elif kind == "extra_forbidden":
        kind, message = "unknown_field", message + did_you_mean(str(path[-1]), _names_beside(model, path))
    elif kind in {"model_type", "model_attributes_type"}:
        kind, message = "model_type", "must be an object"
    elif kind.startswith("union_tag_"):
        kind = "missing" if kind == "union_tag_not_found" else "literal_error"
        path, message = (*path, "type"), f"must be one of {_tags(model, path)}"
    elif kind == "literal_error" and path[:1] == ("input",) and path[-1] == "role":
        role = value["input"][path[1]]["role"]
        if isinstance(role, str) and role in _NO_MESSAGES:
            message += f"; what a {role} message says goes into the agent's instructions"
    elif path == ("input",) and kind.endswith("_type") and not isinstance(value["input"], str | list):
        kind, message = "input_type", "must be a text or a list of messages"
    return FieldError(pointer(path), kind, message)


def _path(location: Path, value: Any, *, missing: bool) -> Path:
    """Return the place in the body. Pydantic also names the branches of a union, and says when it means a key."""
    path: list[str | int] = []
    for at, part in enumerate(location):
        if _inside(value, part):
            value = value[part]
        elif not (missing and at == len(location) - 1):
            continue
        path.append(part)
    return tuple(path)


def _inside(value: Any, part: str | int) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and part < len(value)


def _names_beside(model: type[BaseModel], path: Path) -> Iterator[str]:
    """Yield the fields that the object has, or may have, in which ``path`` ends."""
    for inner in _models_at(model, path[:-1]):
        yield from inner.model_fields


def _tags(model: type[BaseModel], path: Path) -> str:
    fields = [inner.model_fields["type"] for inner in _models_at(model, path)]
    return ", ".join(tag for field in fields for tag in get_args(field.annotation))


def _models_at(model: type[BaseModel], path: Path) -> list[type[BaseModel]]:
    here = [model]
    for name in (part for part in path if isinstance(part, str)):
        types = [parent.model_fields[name].annotation for parent in here if name in parent.model_fields]
        here = [inner for annotation in types for inner in _models_in(annotation)]
    return here


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def _without_doubles(faults: list[FieldError]) -> list[FieldError]:
    """Keep one fault a place: all branches of a union complain, the wrong ones of the type, and all above the fault
    itself."""
    best: dict[str, FieldError] = {}
    for fault in faults:
        known = best.setdefault(fault.pointer, fault)
        both = fault.message.startswith(_MUST_BE) and known.message.startswith(_MUST_BE)
        if both and fault.message != known.message:
            best[fault.pointer] = replace(known, message=f"{known.message}, or {fault.message.removeprefix(_MUST_BE)}")
    above = {place[:at] for place in best for at, letter in enumerate(place) if letter == "/"}
    return [fault for place, fault in best.items() if place not in above]
