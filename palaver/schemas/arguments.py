"""The arguments of a tool call: JSON that a model wrote, so it may be anything."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pydantic_core import from_json

from palaver.errors import InvalidToolCall
from palaver.vocabulary.limits import count_exceeded, limit_of

_SHOWN_FAULTS: Final = 8
"""The number of a call's faults that its model sees; below, the characters and levels of each."""
_SHOWN_FAULT: Final = 120
_SHOWN_NAME: Final = 40
_SHOWN_LEVELS: Final = 8
_QUOTED: Final = 100
"""Characters of the parser's complaint that a model sees."""
_HUGE: Final = re.compile(r"\d{200}|[eE]\+?\d{3}")
"""Matches in every number that is too large for a float."""


def read(text: str) -> dict[str, Any]:
    """The arguments in ``text``; none if it is blank. The work is linear in its length.

    Raises:
        InvalidToolCall: it is no JSON object, or one of too many levels or values; says so to the model.
    """
    arguments = _object(text)
    limit = exceeded(arguments, text)
    if limit is not None:
        count_exceeded(limit)
        what = "levels" if limit == "arguments_depth" else "values"
        raise InvalidToolCall(f"the arguments have more than {limit_of(limit)} {what}")
    if _infinite(arguments, text):
        raise InvalidToolCall("the arguments are not JSON: a number is too large")
    return arguments


def readable(text: str) -> dict[str, Any] | None:
    """Read arguments that were judged before in the same way; None in place of a text that is no arguments."""
    try:
        arguments = _object(text)
    except InvalidToolCall:
        return None
    return None if exceeded(arguments, text) or _infinite(arguments, text) else arguments


def as_json(text: str) -> str:
    """The arguments as a JSON object: in place of a text that is none, which others refuse, an empty one."""
    return "{}" if readable(text) is None else text.strip() or "{}"


def in_words(faults: Sequence[tuple[Sequence[int | str], str]], *, whole: str = "arguments") -> str:
    """Describe what does not fit, each fault with its place in the ``whole``, as far as a model can make use of it."""
    sentences = [
        f"{'.'.join(str(part)[:_SHOWN_NAME] for part in place[:_SHOWN_LEVELS]) or whole}: {fault[:_SHOWN_FAULT]}"
        for place, fault in faults[:_SHOWN_FAULTS]
    ]
    more = len(faults) - len(sentences)
    return "; ".join([*sentences, f"and {more} more"] if more else sentences)


def _object(text: str) -> dict[str, Any]:
    try:
        parsed = from_json(text.strip().encode() or b"{}", allow_inf_nan=False)
    except ValueError as error:
        raise InvalidToolCall(f"the arguments are not JSON: {str(error)[:_QUOTED]}") from None
    if not isinstance(parsed, dict):
        raise InvalidToolCall("the arguments must be a JSON object")
    return parsed


def _infinite(arguments: dict[str, Any], text: str) -> bool:
    """Tell whether a number in it is too large for a float. It looks at each value, so they have to be counted
    before."""
    return bool(_HUGE.search(text)) and any(
        isinstance(value, float) and math.isinf(value) for value in _values(arguments)
    )


def _values(arguments: dict[str, Any]) -> Iterator[Any]:
    """All of them, at every level."""
    left: list[Any] = [arguments]
    while left:
        value = left.pop()
        yield value
        left.extend(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())


def exceeded(parsed: dict[str, Any] | list[Any], text: str) -> str | None:
    """The limit that ``parsed``, which is ``text``, goes beyond: ``arguments_depth`` or ``arguments_values``."""
    # There are no more levels than brackets, and no more values than commas and brackets: most need no further look.
    brackets = text.count("{") + text.count("[")
    if brackets <= limit_of("arguments_depth") and brackets + text.count(",") <= limit_of("arguments_values"):
        return None
    level: list[Any] = [parsed]
    depth = values = 0
    while level:
        depth += 1
        values += sum(map(len, level))
        if depth > limit_of("arguments_depth"):
            return "arguments_depth"
        if values > limit_of("arguments_values"):
            return "arguments_values"
        members = (container.values() if isinstance(container, dict) else container for container in level)
        level = [value for container in members for value in container if isinstance(value, dict | list)]
    return None
