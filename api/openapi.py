"""What the OpenAPI document says about each route: parameters, bodies, answers and problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from .headers import JSON, Header
from .problems import CODES
from .queries import Query
from .signatures import Takes

_REF: Final = "#/components/schemas/{model}"
_OF_BODIES: Final = (
    "malformed_json", "duplicate_key", "too_deep", "request_timeout", "payload_too_large",
    "unsupported_media_type", "validation_error", "invalid_unicode", "too_many_items",
)  # fmt: skip
_OF_QUERIES: Final = ("unknown_parameter", "duplicate_parameter", "validation_error")
_EVERYWHERE: Final = ("malformed_request", "not_acceptable", "internal", "unavailable", "too_many_connections")

Answer = type[BaseModel] | UnionType | None
"""The model of an answer, several of which it is one, or nothing."""


class Schemas:
    """The schemas that the document's components hold, gathered as routes are declared."""

    def __init__(self) -> None:
        self._models: list[type[BaseModel]] = []

    def ref(self, model: type[BaseModel]) -> dict[str, str]:
        """A reference to a model's schema."""
        if model not in self._models:
            self._models.append(model)
        return {"$ref": _REF.format(model=model.__name__)}

    def components(self) -> dict[str, Any]:
        """The schemas, by name."""
        _, definitions = models_json_schema([(model, "validation") for model in self._models], ref_template=_REF)
        found: dict[str, Any] = definitions.get("$defs", {})
        return found


@dataclass(frozen=True, slots=True)
class ErrorFormat:
    """How a dialect's errors look."""

    media_type: str
    name: str
    """Of the schema."""
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Says:
    """What a route says about itself beside what it takes."""

    answers: Mapping[int, tuple[str, Answer]]
    """By status; the first is the usual one."""
    problems: Sequence[str] = ()
    """Codes, beside those that come from what it takes."""
    examples: Mapping[str, Any] | None = None
    """Of its body."""
    streams: Mapping[str, Any] | None = None
    """The media type objects of a 200 that is a stream, by media type."""


def operation(takes: Takes, says: Says, schemas: Schemas, errors: ErrorFormat) -> dict[str, Any]:
    """The ``openapi_extra`` of a route."""
    problems = [code for header in takes.headers for code in header.problems] + list(says.problems)
    found: dict[str, Any] = {
        "parameters": [
            *_path_parameters(takes.path),
            *_query_parameters(takes.query),
            *_header_parameters(takes.headers),
        ],
        "responses": {str(status): _answer(*answer, schemas) for status, answer in says.answers.items()},
    }
    if says.streams is not None:
        found["responses"]["200"].setdefault("content", {}).update(says.streams)
    if takes.body is not None:
        content: dict[str, Any] = {"schema": schemas.ref(takes.body)}
        if says.examples:
            content["examples"] = {name: {"value": value} for name, value in says.examples.items()}
        found["requestBody"] = {"required": takes.body_required, "content": {JSON: content}}
        problems += _OF_BODIES
    if takes.query is not None:
        problems += _OF_QUERIES
    if not takes.probe:
        found["security"] = [{"key": []}]
        problems.append("unauthenticated")
    found["responses"] |= _problems((*problems, *_EVERYWHERE), errors)
    return found


def _answer(description: str, model: Answer, schemas: Schemas) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": description}
    if isinstance(model, UnionType):
        schema: dict[str, Any] = {"anyOf": [schemas.ref(each) for each in get_args(model)]}
        answer["content"] = {JSON: {"schema": schema}}
    elif model is not None:
        answer["content"] = {JSON: {"schema": schemas.ref(model)}}
    return answer


def _problems(codes: Sequence[str], errors: ErrorFormat) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(CODES[code][0], []).append(code)
    return {
        str(status): {
            "description": "; ".join(f"`{code}`: {CODES[code][1]}" for code in found),
            "content": {errors.media_type: {"schema": {"$ref": _REF.format(model=errors.name)}}},
        }
        for status, found in sorted(by_status.items())
    }


def _path_parameters(path: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string"},
            "description": description,
        }
        for name, description in path.items()
    ]


def _query_parameters(query: type[Query] | None) -> list[dict[str, Any]]:
    if query is None:
        return []
    schema = query.model_json_schema()
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "style": "form",
            "explode": True,
            "description": facts.pop("description", ""),
            "schema": _inlined(facts, schema.get("$defs", {})),
        }
        for name, facts in schema.get("properties", {}).items()
    ]


def _inlined(part: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema with its references replaced by what they refer to, and without null: parameters are left out."""
    if isinstance(part, list):
        return [_inlined(each, definitions) for each in part]
    if not isinstance(part, dict):
        return part
    meant: dict[str, Any] = {}
    if "$ref" in part:
        meant = definitions[part["$ref"].rpartition("/")[2]]
    elif {"type": "null"} in part.get("anyOf", ()):
        meant = _inlined(next(each for each in part["anyOf"] if each != {"type": "null"}), definitions)
        part = {key: value for key, value in part.items() if key not in {"anyOf", "default"}}
    return {
        key: _inlined(value, definitions) for key, value in {**meant, **part}.items() if key not in {"$ref", "title"}
    }


def _header_parameters(headers: Sequence[Header]) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "in": "header", "required": False, "schema": each.schema, "description": each.description}
        for each in headers
    ]
