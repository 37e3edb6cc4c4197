"""Arguments against the JSON schema of a tool, for who has no more of the tool than its declaration.

Apart from the other modules: what only declares tools needs no validator installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from palaver.errors import InvalidToolCall
from palaver.schemas import json_schemas
from palaver.schemas.arguments import in_words, read
from palaver.schemas.json_schemas import SchemaMismatch, Unfit


class Declared(Protocol):
    """A tool, of whatever kind, of which the name and the schema are known."""

    @property
    def name(self) -> str:
        """As models call it."""

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON schema of the arguments."""


def misfits(schema: dict[str, Any], arguments: Mapping[str, Any]) -> list[SchemaMismatch]:
    """Return the parts of ``arguments`` that do not fit; none if they cannot be held to the schema: the tool has the
    last word."""
    try:
        return json_schemas.misfits(schema, arguments)
    except Unfit:
        return []


def fitting(declared: Declared, text: str) -> dict[str, Any]:
    """The arguments in the JSON ``text``, if they fit the schema of the tool.

    Raises:
        InvalidToolCall: says to the model what does not fit.
    """
    try:
        arguments = read(text)
    except InvalidToolCall as error:
        raise InvalidToolCall(f"the arguments of {declared.name} do not fit: {error}") from None
    if faults := [(misfit.place, misfit.message) for misfit in misfits(declared.parameters, arguments)]:
        raise InvalidToolCall(f"the arguments of {declared.name} do not fit: {in_words(faults)}")
    return arguments
