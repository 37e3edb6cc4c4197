"""Questions of a server to a person, in the middle of a call (elicitation): which of them are put to anybody, and what
is kept of the call meanwhile.

A server asks by an answer that is none yet. The call is left then, and made again with the answers and with the state
that the server gave for it. Several questions are asked one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from palaver.errors import ToolError
from palaver.late import dataclass
from palaver.schemas import json_schemas
from palaver.schemas.actions import ServerQuestion
from palaver.secrets.redaction import redact
from palaver.vocabulary.limits import count_exceeded, limit_of

from .offered_tools import visible
from .wire import InvalidAnswer, Message

_METHOD: Final = "elicitation/create"
_LONGEST_KEY: Final = 200
_LONGEST_URL: Final = 2_048
_TEXTS: Final = ("title", "description")
_RULES: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"enum", "enumNames", "oneOf", "format", "minLength", "maxLength", "pattern", "default"}),
    "number": frozenset({"minimum", "maximum", "default"}),
    "integer": frozenset({"minimum", "maximum", "default"}),
    "boolean": frozenset({"default"}),
    "array": frozenset({"items", "minItems", "maxItems", "default"}),
}
"""What a field of a form may say, by its type: all that a person can be shown in a row of inputs."""
_CHOICES: Final = frozenset({"type", "enum", "anyOf", "oneOf"})


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call whose server has asked something, as it is kept until the answers are there."""

    questions: Mapping[str, ServerQuestion]
    """By the server's keys, in its order."""
    state: str | None
    """The state that the server wants back, unchanged."""
    asked: int
    """Questions that the call has asked so far, these included."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """By the same keys."""

    @property
    def pending(self) -> ServerQuestion | None:
        """The question that is to be asked now; None if all are answered."""
        return next((asked for key, asked in self.questions.items() if key not in self.answers), None)

    def answered(self, answer: Any) -> AskedCall:
        """Return it with the answer to the pending question."""
        key = next(key for key in self.questions if key not in self.answers)
        return replace(self, answers={**self.answers, key: answer})

    @property
    def again(self) -> dict[str, Any]:
        """The parameters with which the call is made again."""
        state = {} if self.state is None else {"requestState": self.state}
        return {"inputResponses": dict(self.answers), **state}

    def dump(self) -> str:
        """Return it as JSON."""
        questions = {key: asked.model_dump(exclude_none=True) for key, asked in self.questions.items()}
        kept = {"questions": questions, "state": self.state, "asked": self.asked, "answers": dict(self.answers)}
        return orjson.dumps(kept).decode()

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> AskedCall:
        """Read what `dump` has written."""
        questions = {key: ServerQuestion.model_validate(asked) for key, asked in kept["questions"].items()}
        return cls(questions, kept["state"], kept["asked"], kept["answers"])


def asked_by(answer: Message, asker: str, before: int) -> AskedCall:
    """The questions in an answer of the server ``asker``, whose call has asked so many ``before``.

    Raises:
        InvalidAnswer: it is none.
        ToolError: one of them is not put to anybody.
    """
    questions = questions_in(answer.get("inputRequests"), asker, before)
    state = answer.get("requestState")
    if not isinstance(state, str | None):
        raise InvalidAnswer("its state is no text")
    require_small(state, asker)
    return AskedCall(questions, state, before + len(questions))


def require_small(state: str | None, asker: str) -> None:
    """Raises:
    ToolError: a server's state is larger than is kept for it.
    """
    if state is not None and len(state.encode()) > limit_of("mcp_state"):
        count_exceeded("mcp_state")
        raise ToolError(f"{asker} wants a state back of more than {limit_of('mcp_state'):,} bytes")


def questions_in(requests: object, asker: str, before: int = 0) -> dict[str, ServerQuestion]:
    """The questions in the requests of a server for input, by their keys. Raises as `asked_by`."""
    if not isinstance(requests, dict) or not requests:
        raise InvalidAnswer("it wants something and does not say what")
    if before + len(requests) > limit_of("mcp_questions"):
        count_exceeded("mcp_questions")
        raise ToolError(f"{asker} asks more than {limit_of('mcp_questions')} questions in one call")
    if any(not 0 < len(key) <= _LONGEST_KEY for key in requests):
        raise InvalidAnswer("it asks under a name that is none")
    return {key: _question(request, asker) for key, request in requests.items()}


def _question(request: object, asker: str) -> ServerQuestion:
    match request:
        case {"method": str() as method} if method != _METHOD:
            raise ToolError(f"{asker} wants {visible(method)[:80]!r}, which is not supported here")
        case {"method": str(), "params": dict() as params}:
            pass
        case _:
            raise InvalidAnswer("it asks what is no question")
    if not isinstance(message := params.get("message"), str):
        raise InvalidAnswer("it asks without words")
    most = limit_of("mcp_message")
    if len(message) > most:
        count_exceeded("mcp_message")
    shown = redact(visible(message[:most]))
    match params.get("mode", "form"):
        case "form":
            return ServerQuestion(asker=asker, message=shown, form=_form(params.get("requestedSchema"), asker))
        case "url":
            return ServerQuestion(asker=asker, message=shown, url=_address(params.get("url"), asker))
    raise ToolError(f"{asker} asks in a way that is unknown here")


def _address(url: object, asker: str) -> str:
    """The address of a question, as a person may be shown it: nothing in it looks like another host."""
    if not isinstance(url, str) or len(url) > _LONGEST_URL or not (url.isascii() and url.isprintable()) or " " in url:
        raise ToolError(f"{asker} sends a person to an address that is none")
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        is_one = False
    if not is_one or "\\" in url:
        raise ToolError(f"{asker} sends a person to an address that is none")
    return url


def _form(schema: object, asker: str) -> dict[str, Any]:
    """The schema of an answer: a flat object, in which nothing is hidden from who fills it in."""
    properties = schema.get("properties") if isinstance(schema, dict) and schema.get("type") == "object" else None
    if not isinstance(schema, dict) or not isinstance(properties, dict):
        raise ToolError(f"{asker} asks for something else than a form")
    too_many, too_large = len(properties) > limit_of("mcp_fields"), len(orjson.dumps(schema)) > limit_of("mcp_form")
    if too_many or too_large:
        count_exceeded("mcp_fields" if too_many else "mcp_form")
        raise ToolError(f"{asker} asks for more than a form may")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(name in properties for name in required if isinstance(name, str)):
        raise ToolError(f"{asker} asks for something else than a form")
    fields = {name: _field(part, asker) for name, part in properties.items()}
    form = {"type": "object", "properties": fields, "required": required, "additionalProperties": False}
    if not all(text == visible(text) for text in _texts(form)):
        # Changed, an answer would not be what the server wants.
        raise ToolError(f"{asker} asks for a form that shows something else than it says")
    try:
        json_schemas.require_fit(form)
    except json_schemas.Unfit as error:
        raise ToolError(f"{asker} asks for a form that no answer can be held to: {error}") from None
    return form


def _texts(form: object) -> Iterator[str]:
    """All names and texts in it."""
    left = [form]
    while left:
        match left.pop():
            case str() as text:
                yield text
            case dict() as inner:
                left += [*inner, *inner.values()]
            case list() as inner:
                left += inner


def _field(part: object, asker: str) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str) or kind not in _RULES:
        raise ToolError(f"{asker} asks for something else than texts, numbers and choices")
    if kind == "array" and not (isinstance(items := part.get("items"), dict) and items.keys() <= _CHOICES):
        raise ToolError(f"{asker} asks for something else than texts, numbers and choices")
    shown = {name: redact(visible(text)) for name in _TEXTS if isinstance(text := part.get(name), str)}
    return {"type": kind, **shown, **{name: part[name] for name in _RULES[kind] if name in part}}
