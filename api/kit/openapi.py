"""The OpenAPI document's account of each route: parameters, bodies, answers and problems."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema
from pydantic_core import core_schema

from palaver.late import dataclass

from ..http.headers import JSON, Header
from ..http.problems import CODES
from ..http.queries import Query
from .signatures import InPath, Takes

_REF: Final = "#/components/schemas/{model}"
_MODE: Final = re.compile("-(?:Input|Output)$")
_OF_BODIES: Final = (
    "malformed_json", "duplicate_key", "too_deep", "request_timeout", "payload_too_large",
    "unsupported_media_type", "validation_error", "invalid_unicode", "too_many_items",
)  # fmt: skip
_OF_QUERIES: Final = ("unknown_parameter", "duplicate_parameter", "validation_error")
_EVERYWHERE: Final = (
    "malformed_request",
    "not_acceptable",
    "internal",
    "corrupt_record",
    "unavailable",
    "too_many_connections",
)

Answer = type[BaseModel] | UnionType | None
"""The model of an answer, several of which it is one, or nothing."""


class _Generator(GenerateJsonSchema):
    """The generator of schemas for generators of clients: answers have every field but those that say when they are
    absent, and bodies may leave some out.

    Some generators take a field with a ``default`` for one that is always there, so bodies say theirs in words.
    """

    def field_is_required(self, field: Any, total: bool) -> bool:
        """Tell whether a field is required, as the base does; of an answer every field is that is never absent."""
        always = self.mode == "serialization" and "serialization_exclude_if" not in field
        return always or super().field_is_required(field, total)

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Tell that fields have no titles: one would only repeat the name."""
        return False

    def dict_schema(self, schema: core_schema.DictSchema) -> dict[str, Any]:
        """Return the schema as the base does; where names have a pattern, there are no others."""
        described = super().dict_schema(schema)
        return {**described, "additionalProperties": False} if "patternProperties" in described else described

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        """Return the schema as the base does, with the default of a body's field in words."""
        described = super().default_schema(schema)
        default = described.pop("default", None)
        if self.mode == "validation" and default not in (None, "", [], {}):
            described["description"] = f"Default: `{json.dumps(default)}`."
        return described


class Schemas:
    """The schemas that the document's components hold, gathered as routes are described.

    A body may leave out what has a default, and an answer has every field. So a model that is in both has two schemas:
    ``AgentSpec`` for answers, and ``AgentSpecInput`` for requests.
    """

    def __init__(self) -> None:
        self._models: dict[type[BaseModel], JsonSchemaMode] = {}

    def of_body(self, model: type[BaseModel]) -> dict[str, str]:
        """Return a reference to the schema of a body."""
        return self._ref(model, "validation")

    def of_answer(self, model: type[BaseModel]) -> dict[str, str]:
        """Return a reference to the schema of an answer."""
        return self._ref(model, "serialization")

    def _ref(self, model: type[BaseModel], mode: JsonSchemaMode) -> dict[str, str]:
        if self._models.setdefault(model, mode) != mode:
            raise TypeError(f"{model.__name__} is a body and an answer: make it two models")
        return {"$ref": _REF.format(model=model.__name__)}

    def components(self) -> dict[str, Any]:
        """Return the schemas, by name."""
        _, definitions = models_json_schema([*self._models.items()], ref_template=_REF, schema_generator=_Generator)
        schemas: dict[str, Any] = _renamed(definitions).get("$defs", {})
        if lost := [model.__name__ for model in self._models if model.__name__ not in schemas]:
            raise TypeError(f"part of an answer and a whole body, or the other way round: {', '.join(lost)}")
        # Some generators name a class by the title.
        return {name: {**schema, "title": name} for name, schema in schemas.items()}


def _renamed(part: Any) -> Any:
    """Return schemas whose names have no dashes, as names in programs: pydantic ends them with ``-Input`` and
    ``-Output``."""
    if isinstance(part, list):
        return [_renamed(item) for item in part]
    if not isinstance(part, dict):
        return _name(part) if isinstance(part, str) and part.startswith(_REF.format(model="")) else part
    renamed = {_name(key): _renamed(value) for key, value in part.items()}
    if len(renamed) < len(part):
        raise TypeError("a model ends with Input and has the name of another one's schema: rename it")
    return renamed


def _name(name: str) -> str:
    return _MODE.sub(lambda match: "" if match[0] == "-Output" else "Input", name)


@dataclass(frozen=True, slots=True)
class ErrorFormat:
    """The form of a dialect's errors."""

    media_type: str
    name: str
    """The name of the schema."""
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Says:
    """A route's account of itself, besides its parameters."""

    answers: Mapping[int, tuple[str, Answer]]
    """By status; the first is the usual one."""
    problems: Sequence[str] = ()
    """Codes, beside those that come from its parameters."""
    examples: Mapping[str, Any] | None = None
    """Examples of its body."""
    also: Mapping[str, Any] | None = None
    """The media type objects of a 200 that is not JSON, by media type."""


def operation(takes: Takes, says: Says, schemas: Schemas, errors: ErrorFormat) -> dict[str, Any]:
    """Return what the document says of a route's parameters, answers and problems."""
    problems = [code for header in takes.headers for code in header.problems] + list(says.problems)
    description: dict[str, Any] = {
        "parameters": [
            *_path_parameters(takes.path),
            *_query_parameters(takes.query),
            *_header_parameters(takes.headers),
        ],
        "responses": {str(status): _answer(*answer, schemas) for status, answer in says.answers.items()},
    }
    if says.also is not None:
        description["responses"]["200"].setdefault("content", {}).update(says.also)
    if takes.body is not None:
        content: dict[str, Any] = {"schema": schemas.of_body(takes.body)}
        if says.examples:
            content["examples"] = {name: {"value": value} for name, value in says.examples.items()}
        description["requestBody"] = {"required": takes.body_required, "content": {JSON: content}}
        problems += _OF_BODIES
    if takes.query is not None:
        problems += _OF_QUERIES
    if any(part.read is not str for part in takes.path.values()):
        problems.append("validation_error")
    if not takes.probe:
        description["security"] = [{"key": [scope]} for scope in takes.scopes]
        problems += ("unauthenticated", "invalid_token", "insufficient_scope", "tenant_not_allowed")
    description["responses"] |= _problems((*problems, *_EVERYWHERE), errors)
    return description


def _answer(description: str, model: Answer, schemas: Schemas) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": description}
    if isinstance(model, UnionType):
        schema: dict[str, Any] = {"anyOf": [schemas.of_answer(alternative) for alternative in get_args(model)]}
        answer["content"] = {JSON: {"schema": schema}}
    elif model is not None:
        answer["content"] = {JSON: {"schema": schemas.of_answer(model)}}
    return answer


def _problems(codes: Sequence[str], errors: ErrorFormat) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(CODES[code][0], []).append(code)
    return {
        str(status): {
            "description": "; ".join(f"`{code}`: {CODES[code][1]}" for code in group),
            "content": {errors.media_type: {"schema": {"$ref": _REF.format(model=errors.name)}}},
        }
        for status, group in sorted(by_status.items())
    }


def _path_parameters(path: Mapping[str, InPath]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {
                "type": "string",
                **({"format": part.format} if part.format else {}),
                **({"pattern": part.pattern} if part.pattern else {}),
            },
            "description": part.description,
        }
        for name, part in path.items()
    ]


def _query_parameters(query: type[Query] | None) -> list[dict[str, Any]]:
    if query is None:
        return []
    schema = query.model_json_schema()
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "style": "form",
            "explode": True,
            "description": facts.pop("description", ""),
            "schema": inlined(facts, schema.get("$defs", {})),
        }
        for name, facts in schema.get("properties", {}).items()
    ]


def inlined(part: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema with each reference replaced by its target, and without null: what is not there is left out."""
    if isinstance(part, list):
        return [inlined(item, definitions) for item in part]
    if not isinstance(part, dict):
        return part
    meant: dict[str, Any] = {}
    if "$ref" in part:
        meant = definitions[part["$ref"].rpartition("/")[2]]
    elif {"type": "null"} in part.get("anyOf", ()):
        meant = inlined(next(item for item in part["anyOf"] if item != {"type": "null"}), definitions)
        part = {key: value for key, value in part.items() if key not in {"anyOf", "default"}}
    return {
        key: inlined(value, definitions)
        for key, value in {**meant, **part}.items()
        if key not in {"$ref", "title"} and (key, value) != ("default", None)
    }


def _header_parameters(headers: Sequence[Header]) -> list[dict[str, Any]]:
    return [
        {
            "name": header.name,
            "in": "header",
            "required": False,
            "schema": header.schema,
            "description": header.description,
        }
        for header in headers
    ]
