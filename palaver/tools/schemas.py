"""Arguments against the JSON schema of a tool, for who has no more of the tool than its declaration.

Apart from the other modules: what only declares tools needs no validator installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import jsonschema_rs

from palaver.arguments import in_words, read
from palaver.errors import InvalidToolCall
from palaver.tools.declared import ToolDeclaration

MASK: Final = "it"
"""What stands for a value: none that was sent is said again."""


def misfits(schema: dict[str, Any], arguments: Mapping[str, Any]) -> Iterator[jsonschema_rs.ValidationError]:
    """What of ``arguments`` does not fit; nothing if the schema is none: the tool's own code has the last word."""
    try:
        validator = jsonschema_rs.validator_for(schema, mask=MASK, retriever=nothing_from_elsewhere)
    except (ValueError, jsonschema_rs.ValidationError):
        return
    yield from validator.iter_errors(arguments)


def said_of(error: jsonschema_rs.ValidationError) -> str:
    """What is wrong, without the value."""
    return error.message.removeprefix(f"{MASK} ")


def fitting(declared: ToolDeclaration, text: str) -> dict[str, Any]:
    """The arguments in the JSON ``text``, if they fit the schema of the tool.

    Raises:
        InvalidToolCall: says to the model what does not fit.
    """
    try:
        arguments = read(text)
    except InvalidToolCall as error:
        raise InvalidToolCall(f"the arguments of {declared.name} do not fit: {error}") from None
    if faults := [(error.instance_path, said_of(error)) for error in misfits(declared.parameters, arguments)]:
        raise InvalidToolCall(f"the arguments of {declared.name} do not fit: {in_words(faults)}")
    return arguments


def nothing_from_elsewhere(uri: str) -> Any:
    """What a reference to another document gets. Raises ValueError."""
    raise ValueError("a schema has to be whole")
