"""Answers that have to be JSON, perhaps of a schema: whether a schema can be held to, and whether an answer fits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json

from palaver.schemas.arguments import exceeded, in_words
from palaver.schemas.json_schemas import Unfit, misfits, require_fit
from palaver.schemas.model_options import JsonObjectFormat, JsonSchemaFormat, ResponseFormat, TextFormat
from palaver.vocabulary.limits import count_exceeded, limit_of


class UnfitAnswer(ValueError):
    """An answer that is not what its format asks for; says why, in words for the model."""


def structured(response_format: ResponseFormat, text: str) -> Any:
    """Return ``text`` as JSON.

    Raises:
        UnfitAnswer: it is none, or does not fit.
    """
    if len(text) > limit_of("structured_output"):
        count_exceeded("structured_output")
        raise UnfitAnswer(f"it has more than {limit_of('structured_output')} characters")
    try:
        value = from_json(text.strip().encode(), allow_inf_nan=False)
    except ValueError as error:
        raise UnfitAnswer(f"it is not JSON, or not JSON alone: {str(error)[:100]}") from None
    if isinstance(value, dict | list) and (limit := exceeded(value, text)) is not None:
        count_exceeded(limit)
        raise UnfitAnswer(f"it has more than {limit_of(limit)} {'levels' if limit == 'arguments_depth' else 'values'}")
    match response_format:
        case JsonObjectFormat() if not isinstance(value, dict):
            raise UnfitAnswer("it is no JSON object")
        case JsonSchemaFormat(json_schema=schema):
            if faults := [(misfit.place, misfit.message) for misfit in misfits(schema, value)]:
                raise UnfitAnswer(f"it does not fit the schema: {in_words(faults, whole='it')}")
        case JsonObjectFormat() | TextFormat():
            pass
    return value


def output_schema_faults(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield why answers cannot be held to ``schema``, with a JSON pointer into it. Its shape was looked at before."""
    try:
        require_fit(schema)
    except Unfit as error:
        yield error.pointer, str(error)
