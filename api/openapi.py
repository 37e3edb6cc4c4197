"""What the OpenAPI document says about each route: parameters, bodies, answers and problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.problems import CODES, MEDIA_TYPE
from api.queries import Query
from palaver.events import EventKind

_REF: Final = "#/components/schemas/{model}"
_EVERYWHERE: Final = ("malformed_request", "not_acceptable", "internal", "unavailable", "too_many_connections")

PROBLEM: Final[dict[str, Any]] = {
    "title": "Problem",
    "description": "RFC 9457. What the client sent is never quoted.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "instance", "code", "errors", "request_id"],
    "properties": {
        "type": {"type": "string", "description": "`/errors/` and the code."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": ["string", "null"]},
        "instance": {"type": ["string", "null"]},
        "code": {"type": "string", "enum": sorted(CODES)},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "code", "message"],
                "properties": {
                    "pointer": {
                        "type": "string",
                        "description": "A JSON pointer into the body, or `?parameter`.",
                    },
                    "code": {"type": "string"},
                    "message": {"type": "string"},
                },
            },
        },
        "request_id": {"type": "string"},
        "run_id": {"type": "string", "description": "The run that stands in the way."},
        "pending_actions": {
            "type": "array",
            "description": "What that run waits for, where that helps.",
            "items": {"$ref": _REF.format(model="PendingAction")},
        },
    },
}

_HEADERS: Final[dict[str, dict[str, Any]]] = {
    "Idempotency-Key": {
        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        "description": "The same key and body again have no second effect and name the same run. Kept as long as that.",
    },
    "Prefer": {
        "schema": {"type": "string", "examples": ["wait=30", "respond-async"]},
        "description": "`wait=N`: answer 200 with the run when it ends within N seconds (60 at most).",
    },
    "Last-Event-ID": {
        "schema": {"type": "string", "pattern": "^[0-9]{1,15}$"},
        "description": "Go on behind this event; wins over `after`.",
    },
}


Answer = type[BaseModel] | UnionType | None
"""The model of an answer, several of which it is one, or nothing."""


_EVENT: Final[dict[str, Any]] = {
    "description": "Each event of the stream.",
    "type": "object",
    "required": ["data"],
    "properties": {
        "id": {"type": "string", "description": "The event's `seq`; without one, nothing can be resumed from it."},
        "event": {"type": "string", "enum": list(EventKind), "description": "Its `type`. Newer servers have more."},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"$ref": _REF.format(model="KnownEvent")},
            "description": "The event, on one line.",
        },
    },
}


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
        return {"Problem": PROBLEM, **definitions["$defs"]}


SCHEMAS: Final = Schemas()


def operation(
    *,
    answers: Mapping[int, tuple[str, Answer]],
    problems: Sequence[str] = (),
    path: Mapping[str, str] | None = None,
    query: type[Query] | None = None,
    headers: Sequence[str] = (),
    body: type[BaseModel] | None = None,
    body_required: bool = True,
    examples: Mapping[str, Any] | None = None,
    streams: bool = False,
    secured: bool = True,
) -> dict[str, Any]:
    """The ``openapi_extra`` of a route.

    ``path`` describes its path parameters; with ``streams`` its 200 may be a stream.
    """
    found: dict[str, Any] = {
        "parameters": [
            *_path_parameters(path or {}),
            *_query_parameters(query),
            *_header_parameters(headers),
        ],
        "responses": {str(status): _answer(*answer) for status, answer in answers.items()},
    }
    if streams:
        found["responses"]["200"].setdefault("content", {})["text/event-stream"] = {
            "schema": _EVENT,
            "example": 'id: 3\nevent: run.started\ndata: {"type":"run.started","run_id":"…","seq":3,"at":"…"}\n\n',
        }
    if body is not None:
        content: dict[str, Any] = {"schema": SCHEMAS.ref(body)}
        if examples:
            content["examples"] = {name: {"value": value} for name, value in examples.items()}
        found["requestBody"] = {"required": body_required, "content": {"application/json": content}}
        problems = (*problems, *_of_bodies())
    if query is not None:
        problems = (*problems, "unknown_parameter", "duplicate_parameter", "validation_error")
    if secured:
        found["security"] = [{"key": []}]
        problems = (*problems, "unauthenticated")
    found["responses"] |= _problems((*problems, *_EVERYWHERE))
    return found


def _of_bodies() -> tuple[str, ...]:
    return (
        "malformed_json", "duplicate_key", "too_deep", "request_timeout", "payload_too_large",
        "unsupported_media_type", "validation_error", "invalid_unicode", "too_many_items",
    )  # fmt: skip


def _answer(description: str, model: Answer) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": description}
    if isinstance(model, UnionType):
        schema: dict[str, Any] = {"anyOf": [SCHEMAS.ref(each) for each in get_args(model)]}
        answer["content"] = {"application/json": {"schema": schema}}
    elif model is not None:
        answer["content"] = {"application/json": {"schema": SCHEMAS.ref(model)}}
    return answer


def _problems(codes: Sequence[str]) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(CODES[code][0], []).append(code)
    return {
        str(status): {
            "description": "; ".join(f"`{code}`: {CODES[code][1]}" for code in found),
            "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}}},
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
            "explode": False,
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


def _header_parameters(names: Sequence[str]) -> list[dict[str, Any]]:
    return [{"name": name, "in": "header", "required": False, **_HEADERS[name]} for name in names]
