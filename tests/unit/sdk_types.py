"""Requests as the types of a provider's own SDK want them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter


def require_taken(params: TypeAdapter[Any], request: dict[str, Any]) -> None:
    """Raise ValidationError for what the SDK's types would not take, anywhere in a request.

    What they call iterable is validated only as it is looked through.
    """
    _look_through(params.validate_python(request))


def _look_through(value: Any) -> None:
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str):
        for each in value:
            _look_through(each)
