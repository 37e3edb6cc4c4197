"""What pydantic finds wrong, told in our words, without what the client sent."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from api.problems import Fault, Problem
from api.strict_json import Path, pointer
from palaver.models import AgentSpec, Message, StuckLimits, ToolCall

M = TypeVar("M", bound=BaseModel)

_PARTS: dict[str, type[BaseModel]] = {
    "agent": AgentSpec,
    "input": Message,
    "tool_calls": ToolCall,
    "stuck": StuckLimits,
}
"""The models of the parts of a body, by the field that holds them."""
_WORDS = (
    ("Value error, ", ""),
    ("Input should be", "must be"),
    ("String should", "must"),
    ("Value should", "must"),
    ("Tuple should", "must"),
    ("Dictionary should", "must"),
    ("Field required", "is required"),
    ("Extra inputs are not permitted", "is not a field here"),
)
_PATTERNS = {
    "model": "must be provider/name, such as fake/tool-20",
    "tools": "must be a tool's name: letters, digits, _ and -, at most 64",
    "tags": "must be 1 to 64 characters without spaces",
}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that looks most like ``name``; empty when none does."""
    close = difflib.get_close_matches(name[:64], list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def validate(model: type[M], raw: bytes, value: Any) -> M:
    """The body ``raw``, parsed before as ``value``, as a ``model``.

    Raises:
        Problem: ``validation_error`` with a fault for each field that does not fit.
    """
    try:
        return model.model_validate_json(raw, extra="forbid")
    except ValidationError as error:
        faults = [_fault(model, value, found) for found in error.errors(include_url=False, include_input=False)]
        raise Problem.of_faults(_without_doubles(faults)) from None


def _fault(model: type[BaseModel], value: Any, found: Any) -> Fault:
    path, kind = _path(found["loc"]), found["type"]
    message = found["msg"]
    for theirs, ours in _WORDS:
        message = message.replace(theirs, ours)
    name = next((part for part in reversed(path) if isinstance(part, str)), "")
    if kind == "string_pattern_mismatch":
        message = _PATTERNS.get(name, "is not written as it must be")
    elif kind == "extra_forbidden":
        kind, message = "unknown_field", message + did_you_mean(name, _siblings(model, path))
    elif kind == "model_type":
        message = "must be an object"
    elif path == ("input",) and kind != "missing" and not isinstance(value["input"], str | list):
        kind, message = "input_type", "must be a text or a list of messages"
    return Fault(pointer(path), kind, message)


def _path(location: Path) -> Path:
    """The place in the body: pydantic also names the branches of ``input``, and says when it means a key."""
    if location[:1] == ("input",):
        location = ("input", *location[2:])
    return location[:-1] if location[-1:] == ("[key]",) else location


def _siblings(model: type[BaseModel], path: Path) -> Iterable[str]:
    parents = [part for part in path[:-1] if isinstance(part, str)]
    return _PARTS.get(parents[-1], model).model_fields if parents else model.model_fields


def _without_doubles(faults: list[Fault]) -> list[Fault]:
    """One fault a place, the most precise: all branches of a union complain, the wrong ones of the type."""
    best: dict[str, Fault] = {}
    for fault in faults:
        if fault.pointer not in best or best[fault.pointer].code.endswith("_type"):
            best[fault.pointer] = fault
    deeper = [place for place in best if place.startswith("/input/")]
    return [fault for place, fault in best.items() if not (place == "/input" and deeper)]
