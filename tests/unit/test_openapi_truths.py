"""The OpenAPI document is true of requests and answers in places that schemathesis found it wrong in: every dialect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import jsonschema_rs
import pytest

from api.app import create_app
from api.http.headers import EVENT_STREAM
from tests.feature_cases import brought_to_tests

DOCUMENT: Final = create_app().openapi()
OPERATIONS: Final = [
    (f"{method} {path}", operation) for path, item in DOCUMENT["paths"].items() for method, operation in item.items()
]
WORDS: Final = frozenset(
    {
        *("anyOf", "const", "default", "description", "enum", "examples", "format", "items", "maxItems", "maxLength"),
        *("maximum", "minItems", "minLength", "minimum", "oneOf", "pattern", "type", "uniqueItems"),
    }
)
"""Those of JSON Schema that parameters are described with."""


def fits(schema: dict[str, Any], value: object) -> bool:
    """Whether a value is as a schema of the document says."""
    return jsonschema_rs.is_valid({**schema, "components": DOCUMENT["components"]}, value)


def schemas(part: Any) -> Iterator[dict[str, Any]]:
    """Every schema within one."""
    yield part
    for word in ("items", "additionalProperties", "propertyNames", "contentSchema"):
        if isinstance(part.get(word), dict):
            yield from schemas(part[word])
    for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for each in part.get(word, ()):
            yield from schemas(each)
    for word in ("properties", "patternProperties"):
        for each in part.get(word, {}).values():
            yield from schemas(each)


def parameter(operation: str, name: str) -> dict[str, Any]:
    """The schema of a parameter."""
    found = dict(OPERATIONS)[operation]["parameters"]
    schema: dict[str, Any] = next(each["schema"] for each in found if each["name"] == name)
    return schema


def test_the_schema_of_a_stream_has_room_for_an_event() -> None:
    streams = {
        name: content[EVENT_STREAM]["schema"]
        for name, operation in OPERATIONS
        for content in (operation["responses"].get("200", {}).get("content", {}),)
        if EVENT_STREAM in content
    }
    assert len(streams) == 3 + sum(brought_to_tests("STREAMS").values())
    for name, schema in streams.items():
        assert fits(schema, {"event": "run.started", "data": "{}"}), name


@pytest.mark.parametrize(
    ("operation", "name", "taken", "refused"),
    [
        ("put /v1/agents/{name}", "name", "support.eu_1-a", "-support"),
        ("get /v1/agents/{name}", "name", "support@7", "support@0"),
        ("put /v1/agents/{name}", "If-Match", '"7"', ",J"),
        ("put /v1/agents/{name}", "If-Match", "*", '"0"'),
        ("post /v1/runs", "Idempotency-Key", "a b", " a"),
        ("get /v1/audit", "after", "1700000000000-0", "0000"),
        *(row for rows in brought_to_tests("PARAMETERS").values() for row in rows),
    ],
)
def test_what_a_parameter_has_to_be_like_is_in_the_document(
    operation: str, name: str, taken: object, refused: object
) -> None:
    schema = parameter(operation, name)
    assert (fits(schema, taken), fits(schema, refused)) == (True, False)


def test_parameters_are_described_in_words_of_json_schema() -> None:
    said = {
        word
        for _, operation in OPERATIONS
        for each in operation.get("parameters", ())
        for part in schemas(each["schema"])
        for word in part
    }
    assert said <= WORDS


def test_a_name_in_a_path_is_held_to_its_pattern() -> None:
    """Each that is a name of something on the server, in every dialect."""
    names = [
        (operation, each["schema"])
        for operation, described in OPERATIONS
        for each in described.get("parameters", ())
        if (each["in"], each["name"]) == ("path", "name")
    ]
    assert len(names) >= 3
    assert all(re.fullmatch(schema["pattern"], "support") for _, schema in names)
