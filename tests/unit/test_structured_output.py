"""Answers that have to be JSON: what fits, what the model is told, and what it costs to find out."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from palaver.schemas.model_options import JsonObjectFormat, JsonSchemaFormat, TextFormat
from palaver.schemas.structured_output import UnfitAnswer, output_schema_faults, structured
from palaver.vocabulary.limits import exceeded, limit_of

INVOICE = {
    "type": "object",
    "properties": {
        "total": {"type": "number", "minimum": 0},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "day": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
    },
    "required": ["total"],
    "additionalProperties": False,
    "$defs": {"line": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
}
SOMEWHERE = "it does not fit the schema: it: does not fit in some place"
TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
}


def of(schema: dict[str, Any]) -> JsonSchemaFormat:
    return JsonSchemaFormat(type="json_schema", name="it", schema=schema)


def why_not(text: str, schema: dict[str, Any] = INVOICE) -> str:
    with pytest.raises(UnfitAnswer) as caught:
        structured(of(schema), text)
    return str(caught.value)


def test_what_fits_is_read() -> None:
    assert structured(of(INVOICE), ' {"total": 1.5, "lines": [{"text": "a"}], "day": "2026-01-31"}\n') == {
        "total": 1.5, "lines": [{"text": "a"}], "day": "2026-01-31",
    }  # fmt: skip
    assert structured(of({"type": "array"}), "[1]") == [1]
    assert structured(JsonObjectFormat(type="json_object"), '{"a": 1}') == {"a": 1}
    assert structured(TextFormat(type="text"), "1") == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Here you are: {}", "it is not JSON, or not JSON alone"),
        ('```json\n{"total": 1}\n```', "it is not JSON, or not JSON alone"),
        ('{"total": 1', "it is not JSON"),
        ('{"total": NaN}', "it is not JSON"),
        ("", "it is not JSON"),
        ("{}", 'it: "total" is a required property'),
        ('{"total": -1}', "total: is less than the minimum of 0"),
        ('{"total": 1, "lines": [{"text": "a"}, {}]}', 'lines.1: "text" is a required property'),
        ('{"total": 1, "day": "tomorrow"}', "day: does not match"),
        ("[" * 65 + "]" * 65, "more than 64 levels"),
        (json.dumps([0] * 10_001), "more than 10000 values"),
        (json.dumps("x" * (limit_of("structured_output"))), "has more than 262144 characters"),
    ],
)
def test_a_misfit_is_told_with_its_place(text: str, says: str) -> None:
    assert says in why_not(text)


def test_an_object_is_an_object() -> None:
    with pytest.raises(UnfitAnswer, match="no JSON object"):
        structured(JsonObjectFormat(type="json_object"), "[1]")


def test_a_schema_may_refer_to_itself() -> None:
    assert not list(output_schema_faults(TREE))
    assert structured(of(TREE), '{"name": "a", "children": [{"name": "b"}]}')["name"] == "a"
    assert why_not('{"name": "a", "children": [{}]}', TREE) == SOMEWHERE


@pytest.mark.parametrize(
    ("schema", "place", "says"),
    [
        ({"$ref": "https://example.com/a.json"}, "/$ref", "leads to nothing"),
        ({"items": {"$ref": "#/$defs/a"}}, "/items/$ref", "leads to nothing"),
        ({"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}}, "/$ref", "leads to nothing"),
        ({"$dynamicRef": "#a"}, "/$dynamicRef", "is not supported"),
        ({"$defs": {"a": {"$id": "https://example.com/b"}}}, "/$defs/a/$id", "is not supported"),
        ({"pattern": "(?=a)b"}, "/pattern", "look-around"),
        ({"pattern": "(a)\\1"}, "/pattern", "cannot be held to"),
        ({"pattern": "a{1000}{1000}"}, "/pattern", "cannot be held to"),
        ({"minimum": "a"}, "/minimum", "cannot be held to"),
        ({"anyOf": [{"items": {}}] * 1000}, "/anyOf", "more than 2000 parts"),
    ],
)
def test_what_answers_cannot_be_held_to_is_refused(schema: dict[str, Any], place: str, says: str) -> None:
    (found,) = output_schema_faults(schema)
    assert found[0] == place
    assert says in found[1]


def doubling(levels: int) -> dict[str, Any]:
    """A schema that is twice as large with each level, once its references are followed."""
    defs: dict[str, Any] = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {"type": "string"}}}


def test_references_are_counted_as_often_as_they_are_followed() -> None:
    before = exceeded["schema_parts"]
    assert not list(output_schema_faults(doubling(7)))
    assert "more than 2000 parts" in next(iter(output_schema_faults(doubling(15))))[1]
    assert exceeded["schema_parts"] == before + 1
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(900)}
    (found,) = output_schema_faults({"$ref": "#/$defs/d0", "$defs": {**chain, "d900": {}}})
    assert "more than 64 levels" in found[1]


@pytest.mark.parametrize("way", ["allOf", "anyOf", "oneOf"])
def test_a_schema_that_meets_each_level_twice_costs_no_more(way: str) -> None:
    """With each level twice the work, 60 levels would take longer than anybody waits."""
    again = {"properties": {"c": {"$ref": "#"}}}
    schema = {"type": "object", way: [again, {**again, "minProperties": 2}]}
    assert not list(output_schema_faults(schema))
    assert why_not('{"c": ' * 60 + "1" + "}" * 60, schema) == SOMEWHERE


def test_an_answer_and_its_schema_are_not_both_large() -> None:
    wide = {"items": {"anyOf": [{"required": ["a"]}] * 900}}
    assert why_not(json.dumps([{}] * 400), wide).startswith("it does not fit the schema: 0: ")
    assert "too many values" in why_not(json.dumps([{}] * 600), wide)


def test_patterns_take_linear_time() -> None:
    schema = {"type": "string", "pattern": "^(a+)+$"}
    assert "does not match" in why_not(json.dumps("a" * 29_000 + "!"), schema)


THRASHING = "(a|b)*a(a|b){14}c"
"""Nearly each character makes a new state of it, so that it takes as long as a pattern of its size may."""


def test_an_answer_is_charged_for_each_pattern_that_a_text_of_it_may_meet() -> None:
    text = json.dumps("ab" * 1_000)
    for schema in (
        {"anyOf": [{"pattern": f"{THRASHING}{i}"} for i in range(20)]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"pattern": f"{THRASHING}{i}"} for i in range(20)]}}},
        {"type": "string", "pattern": "a", "anyOf": [{"pattern": "^.{0,20}$"}, {"pattern": "[a-z]{1,200}"}]},
        {"properties": {"properties": {"anyOf": [{"pattern": THRASHING}] * 20}}},
        {"properties": {"$defs": {"anyOf": [{"pattern": THRASHING}] * 20}}},
        {"anyOf": [{"pattern": THRASHING}] * 10, "unevaluatedProperties": False},
        {"anyOf": [{"pattern": THRASHING}] * 20, "items": {"$ref": "#"}},
    ):
        before = exceeded["schema_matching"]
        assert not list(output_schema_faults(schema))
        assert "too many characters for the patterns" in why_not(text, schema)
        assert exceeded["schema_matching"] == before + 1
    named = {"dependencies": {"$defs": {"propertyNames": {"anyOf": [{"pattern": THRASHING}] * 20}}}}
    assert "too many characters" in why_not(json.dumps({"$defs": 1, "ab" * 1_000: 1}), named)
    names = json.dumps({f"{'ab' * 100}{i}": 1 for i in range(10)})
    assert "too many characters" in why_not(names, {"patternProperties": {f"{THRASHING}{i}": {} for i in range(20)}})


def test_a_text_meets_the_pattern_of_its_own_place_only() -> None:
    each = {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}$|^$"}
    schema = {"properties": {"text": {"type": "string"}, **{f"id{i}": each for i in range(60)}}}
    answer = {"text": "word " * 4_000, **{f"id{i}": "0123abcd-0123" for i in range(60)}}
    assert structured(of(schema), json.dumps(answer)) == answer
    rows = {"items": {"$ref": "#/$defs/row"}, "$defs": {"row": schema}}
    assert structured(of(rows), json.dumps([answer])) == [answer]


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"pattern": f"{THRASHING}{i}"} for i in range(300)]},
        {"patternProperties": {rf"\\pL{i}": {} for i in range(1_400)}},
        {"allOf": [{"pattern": r"\pL{1}"}] * 12},
        {"allOf": [{"$ref": "#/$defs/a"}] * 101, "$defs": {"a": {"pattern": "a"}}},
    ],
)
def test_more_patterns_than_are_compiled_in_an_instant_are_refused(
    schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = 0

    def counted(*args: Any, **more: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return validator_for(*args, **more)

    validator_for = jsonschema_rs.validator_for
    monkeypatch.setattr(jsonschema_rs, "validator_for", counted)
    (found,) = output_schema_faults(schema)
    assert "more than 100 patterns" in found[1]
    assert compiled < 3 * limit_of("schema_patterns")


def test_a_schema_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "string", "title": "compiled once"}
    structured(of(schema), '"a"')
    monkeypatch.setattr(jsonschema_rs, "validator_for", lambda *_, **__: pytest.fail("compiled again"))
    structured(of(schema), '"b"')


def test_what_is_wrong_in_choices_within_choices_is_not_looked_for_where_that_takes_long() -> None:
    schema: dict[str, Any] = {"anyOf": [{"pattern": f"{THRASHING}{i}"} for i in range(10)]}
    for _ in range(20):
        schema = {"anyOf": [schema]}
    assert "any of the schemas" in why_not(json.dumps("ab" * 50), schema)
    assert why_not(json.dumps("ab" * 1_400), schema) == "it does not fit the schema: it: does not fit in some place"
