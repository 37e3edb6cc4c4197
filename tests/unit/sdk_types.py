"""Requests as the types of a provider's own SDK want them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

from pydantic import TypeAdapter


def require_taken(params: str, request: dict[str, Any]) -> None:
    """Raise ValidationError for what the SDK's type with this full name would not take, anywhere in a request.

    What it calls iterable is validated only as it is looked through.
    """
    _look_through(_adapter(params).validate_python(request))


def sdk_type(name: str) -> Any:
    """The type with this full name. To import it takes seconds: in the process that runs a test of it, and not in each
    one that collects it."""
    module, _, short = name.rpartition(".")
    return getattr(import_module(module), short)


@cache
def _adapter(params: str) -> TypeAdapter[Any]:
    return TypeAdapter(sdk_type(params))


def _look_through(value: Any) -> None:
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str):
        for each in value:
            _look_through(each)
