"""Schemas of answers as Claude and a strict OpenAI take them, which two judges of their own rules say."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, Final, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from features.fake_provider.requests import InvalidRequest
from palaver.schemas.answer_schemas import NotTaken, fitted
from palaver.schemas.grammars import CLAUDE, STRICT, Grammar
from palaver.schemas.json_schemas import misfits
from palaver.schemas.model_options import JsonSchemaFormat
from palaver.schemas.schema_faults import answer_schema_faults
from palaver.schemas.structured_output import UnfitAnswer, structured
from tests.model_server.schemas import judge_answer_of_claude, judge_strict_answer

Schema = dict[str, Any]
GRAMMARS: Final = {"claude": CLAUDE, "strict": STRICT}
JUDGES: Final[dict[str, Callable[[Schema], None]]] = {
    "claude": judge_answer_of_claude,
    "strict": lambda schema: judge_strict_answer("it", schema),
}


def of(properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "properties": properties, **more}


class Invoice(BaseModel):
    goods: str
    crates: int


class Line(BaseModel):
    what: str = Field(min_length=1, max_length=80, description="The goods.")
    price: float = Field(gt=0, multiple_of=0.01)
    kind: Literal["a", "b"] = "a"


class Order(BaseModel):
    number: str = Field(pattern=r"^[A-Z]{2}\d{4}$")
    lines: list[Line] = Field(min_length=2, max_length=9)
    note: str | None = None
    first: Line = Field(description="The first line.")
    when: str = Field(json_schema_extra={"format": "date"})
    at: str = Field(json_schema_extra={"format": "iri"})
    pair: tuple[int, str]


class Node(BaseModel):
    name: str
    children: list[Node] = []
    parent: Node | None = None


TAKEN: Final[dict[str, Schema]] = {
    "the example of the page": Invoice.model_json_schema(),
    "an order": Order.model_json_schema(),
    "bounds": of({"n": {"type": "integer", "minimum": 1, "maximum": 9}, "s": {"type": "string", "minLength": 2}}),
    "many bounds": of({
        "a": {"type": "array", "items": {"type": "string", "maxLength": 4}, "minItems": 3, "maxItems": 5,
              "uniqueItems": True, "contains": {"const": "x"}},
        "o": of({"x": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "multipleOf": 0.5}},
                minProperties=1, maxProperties=4, dependentRequired={"x": ["x"]}),
    }),
    "oneOf": of({"x": {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "integer", "minimum": 3}]}}),
    "anyOf beside properties": of({"a": {"type": "string"}, "b": {"type": "string"}, "k": {"type": "integer"}},
                                  anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
    "allOf": of({"x": {"allOf": [of({"a": {"type": "string"}}, required=["a"]), of({"b": {"type": "integer"}})]}}),
    "a reference with a description": of(
        {"x": {"$ref": "#/$defs/X", "description": "Here."}}, **{"$defs": {"X": of({"y": {"type": "null"}})}}
    ),
    "a reference within allOf": of(
        {"x": {"allOf": [{"$ref": "#/definitions/X"}], "default": None}},
        definitions={"X": of({"y": {"type": "string", "format": "uri"}})},
    ),
    "no types": of({"a": {"enum": ["x", 1, None]}, "b": {"const": 4}, "c": {"properties": {"d": {"minLength": 1}}}}),
    "open by word": of({"a": {"type": "string"}}, additionalProperties=True),
    "an enum of objects": of({"a": {"type": "object", "properties": {"b": {"type": "string"}},
                                    "enum": [{"b": "x"}]}}),
    "conditions": of({"a": {"type": "string"}}, **{"if": {"required": ["a"]}, "then": {"maxProperties": 1}}),
    "not": of({"a": {"type": "string", "not": {"const": "x"}}}),
    "many that may be left out": of({f"p{i}": {"type": "string"} for i in range(30)}),
    "annotations": of({"a": {"type": "string", "examples": ["x"], "readOnly": True, "title": "A", "deprecated": True}},
                      **{"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/a"}),
    "draft 7 tuples": of({"a": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}},
                         **{"$schema": "http://json-schema.org/draft-07/schema#"}),
    "tuples of today": of({"a": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}],
                                 "items": False, "minItems": 2, "maxItems": 2}}),
    "a tuple with a rest": of({"a": {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "null"}}}),
    "references into choices": of({
        "a": {"oneOf": [of({"x": {"type": "integer"}}), {"type": "null"}]},
        "b": {"$ref": "#/properties/a/oneOf/0"},
        "c": {"allOf": [{"type": "string", "maxLength": 3}]},
        "d": {"$ref": "#/properties/c/allOf/0"},
        "e": {"type": "array", "prefixItems": [{"type": "integer"}]},
        "f": {"$ref": "#/properties/e/prefixItems/0"},
    }),
    "a reference with percents": of({"b": {"$ref": "#/$defs/A%5BB%5D"}}, **{"$defs": {"A[B]": {"type": "string"}}}),
    "a reference with a slash": of({"b": {"$ref": "#/$defs/a~1b"}}, **{"$defs": {"a/b": {"type": "string"}}}),
    "bounds of draft 4": of(
        {"n": {"type": "number", "minimum": 1, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False}},
        **{"$schema": "http://json-schema.org/draft-04/schema#"},
    ),
    "a definition that nothing needs": of({"b": {"type": "string"}}, **{"$defs": {"Any": {}, "All": True}}),
    "values of another type": of({"b": {"type": "string", "enum": ["a", None, 1]}}),
    "words about another type": of({"b": {"type": "integer", "pattern": "x", "format": "int64", "minLength": 1}}),
    "no properties by word": of({}, title="Empty"),
    "types that both have": of({"a": {"type": ["string", "integer"], "anyOf": [{"type": "string"}, {"type": "null"}]}}),
    "several types": of({"a": {"type": ["string", "null"], "minLength": 3}, "b": {"type": ["integer", "string"]}}),
}  # fmt: skip


@pytest.mark.parametrize("whose", GRAMMARS)
@pytest.mark.parametrize("schema", TAKEN.values(), ids=TAKEN)
def test_a_schema_is_sent_as_it_is_taken(schema: Schema, whose: str) -> None:
    assert not [*answer_schema_faults(schema)]
    before = copy.deepcopy(schema)
    made = fitted(schema, GRAMMARS[whose])
    JUDGES[whose](made)
    assert schema == before, "the author's own is what the answer is checked against"
    assert json.dumps(fitted(made, GRAMMARS[whose])) == json.dumps(made), "what is taken is sent as it came"
    with pytest.raises(InvalidRequest):
        JUDGES[whose](schema)


def test_what_is_taken_out_is_told_to_the_model_and_checked() -> None:
    schema = of({"n": {"type": "integer", "minimum": 1, "description": "How many."}}, required=["n"])
    made = fitted(schema, CLAUDE)
    assert made == {
        "type": "object",
        "properties": {"n": {"type": "integer", "description": "How many. (minimum: 1)"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    assert not misfits(made, {"n": 0})
    wanted = JsonSchemaFormat(type="json_schema", name="it", schema=schema)
    with pytest.raises(UnfitAnswer, match="less than the minimum of 1"):
        structured(wanted, '{"n": 0}')


def test_what_fits_already_is_sent_byte_for_byte() -> None:
    for schema in (
        {"additionalProperties": False, "type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}},
        fitted(Order.model_json_schema(), CLAUDE),
    ):
        assert json.dumps(fitted(schema, CLAUDE)) == json.dumps(schema)


REFUSED: Final[tuple[tuple[Grammar, Schema, str, str], ...]] = (
    (CLAUDE, of({"m": {"type": "object", "additionalProperties": {"type": "integer"}}}),
     "/properties/m/additionalProperties", "names that are not known"),
    (STRICT, of({"m": {"type": "object"}}), "/properties/m", "names no properties"),
    (CLAUDE, of({"m": of({"a": {"type": "null"}}, patternProperties={"^x": {"type": "string"}})}),
     "/properties/m/patternProperties", "names that are not known"),
    (CLAUDE, Node.model_json_schema(), "/$ref", "leads back into itself"),
    (CLAUDE, of({"a": {}}), "/properties/a", "says nothing of its type"),
    (STRICT, of({"a": True}), "/properties/a", "says nothing of its type"),
    (STRICT, {"type": "array", "items": {"type": "string"}}, "", "an object at the top"),
    (STRICT, {"anyOf": [of({"a": {"type": "string"}})]}, "", "an object at the top"),
    (CLAUDE, of({"a": {"type": "string", "nullable": True}}), "/properties/a/nullable", "a word of OpenAPI"),
    (STRICT, of({"a": {"type": "array", "items": True}}), "/properties/a/items", "says nothing of its type"),
    (CLAUDE, of({"a": {"type": "string", "const": 1}}), "/properties/a/const", "no value of the type"),
    (STRICT, of({"a": {"type": "string", "enum": [1]}}), "/properties/a/enum", "no value of the type"),
    (STRICT, of({"a": {"type": "object", "properties": {}, "additionalProperties": True}}), "/properties/a",
     "names no properties"),
    (STRICT, of({"a": {"oneOf": [of({"b": {"$ref": "#/properties/a/oneOf/0"}}), {"type": "null"}]}}),
     "/$ref", "leads back into a choice"),
    (STRICT, of({"a": {"type": "array"}}), "/properties/a/items", "what is in an array"),
    (STRICT, of({"a": {"type": "string"}}, required=["b"]), "/required", "none of the properties"),
    (STRICT, of({"a": {"$ref": "#"}}), "", "would never end"),
    (STRICT, of({"e": {"enum": [*range(1001)]}}), "", "1001 values in enum"),
    (CLAUDE, of({f"u{i}": {"type": ["string", "null"]} for i in range(17)}), "", "17 parts with anyOf"),
)  # fmt: skip


@pytest.mark.parametrize(("grammar", "schema", "place", "says"), REFUSED)
def test_what_cannot_be_said_is_refused_with_its_place(grammar: Grammar, schema: Schema, place: str, says: str) -> None:
    with pytest.raises(NotTaken, match=says) as caught:
        fitted(schema, grammar)
    pointer = "".join(f"/{part}" for part in caught.value.path)
    assert pointer == place or (place == "/$ref" and pointer.endswith(place))


def test_levels_of_objects_are_bounded_where_they_are() -> None:
    def nested(levels: int) -> Schema:
        return of({"a": nested(levels - 1) if levels > 1 else {"type": "string"}})

    judge_strict_answer("it", fitted(nested(10), STRICT))
    with pytest.raises(NotTaken, match="deeper than 10 objects"):
        fitted(nested(11), STRICT)
    judge_answer_of_claude(fitted(nested(11), CLAUDE))


def test_alternatives_that_multiply_are_bounded() -> None:
    schema: Schema = {"type": "string"}
    for level in range(14):
        schema = of({f"p{level}": schema, "x": {"type": "string"}},
                    anyOf=[of({"y": {"const": 1}}), of({"y": {"const": 2}})])  # fmt: skip
    with pytest.raises(NotTaken, match="too many parts"):
        fitted(schema, CLAUDE)


def test_a_strict_model_goes_on_where_references_lead_back() -> None:
    made = fitted(Node.model_json_schema(), STRICT)
    judge_strict_answer("it", made)
    assert made["required"] == ["name", "children", "parent"]


scalars = st.sampled_from([
    {"type": "string", "minLength": 2}, {"type": "integer", "minimum": 0}, {"type": "number", "multipleOf": 2},
    {"type": "boolean"}, {"type": ["string", "null"], "pattern": "^a"}, {"enum": ["a", "b"]}, {"const": 1},
    {"type": "string", "format": "idn-email"}, {"$ref": "#/$defs/D"}, {"$ref": "#/$defs/D", "description": "It."},
])  # fmt: skip


def held(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    names = st.sampled_from("abc")
    objects = st.builds(of, st.dictionaries(names, inner, min_size=1), title=st.just("T"))
    return st.one_of(
        objects,
        st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 3)),
        st.builds(lambda name, members: {name: members}, st.sampled_from(["anyOf", "oneOf", "allOf"]),
                  st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda one, other: {**one, "oneOf": [other]}, objects, objects),
    )  # fmt: skip


@given(st.dictionaries(st.sampled_from("xyz"), st.recursive(scalars, held, max_leaves=6), min_size=1))
def test_whatever_is_sent_is_taken(properties: Schema) -> None:
    schema = of(properties, **{"$defs": {"D": of({"d": {"type": "string", "maxLength": 3}})}})
    for whose, grammar in GRAMMARS.items():
        try:
            made = fitted(schema, grammar)
        except NotTaken:
            continue
        JUDGES[whose](made)
        assert fitted(made, grammar) == made
