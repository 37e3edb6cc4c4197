"""Schemas of tools as OpenAI and Claude take them, and the calls that come back."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.fake_provider.requests import InvalidRequest
from palaver.schemas.json_schemas import misfits
from palaver.schemas.models import AgentSpec, Message, ToolCall, Usage
from palaver.schemas.protocols import PROTOCOL_RULES, ProtocolName
from palaver.schemas.schema_faults import tool_schema_faults
from palaver.schemas.tool_schemas import FittedTool, fitted_tool
from tests.model_server.judge import read
from tests.model_server.schemas import judge_tool_of_claude, judge_tool_of_openai
from workers.protocols import PROTOCOLS, CallSettings, ModelReply, Offer, as_declared

Schema = dict[str, Any]
NUMBER: Final = {"type": "number"}
TEXT: Final = {"type": "string"}
PATHS: Final[dict[ProtocolName, str]] = {
    "chat_completions": "/v1/chat/completions", "anthropic": "/v1/messages", "responses": "/v1/responses",
}  # fmt: skip


def of(properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "properties": properties, **more}


REFUSED: Final[dict[str, Schema]] = {
    "anyOf of what is required": of({"a": TEXT, "b": TEXT}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
    "oneOf objects": {"oneOf": [of({"a": TEXT}, required=["a"]), of({"a": NUMBER, "b": TEXT}, required=["a", "b"])]},
    "anyOf with what is no object": {"type": "object", "anyOf": [of({"a": TEXT}), {"type": "string"}]},
    "allOf": {"type": "object", "allOf": [of({"a": TEXT}, required=["a"]), of({"b": TEXT}, required=["b"])]},
    "allOf of references": {"allOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": of({"a": TEXT}, required=["a"])}},
    "a reference": {"$ref": "#/definitions/A", "definitions": {"A": of({"a": {"$ref": "#/definitions/A"}})}},
    "a choice of references": {
        "anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}],
        "$defs": {"A": of({"kind": {"const": "a"}}), "B": of({"kind": {"const": "b"}, "n": NUMBER})},
    },
    "enum": of({"a": NUMBER}, enum=[{"a": 1}, {"a": 2}]),
    "not": of({"a": NUMBER}, **{"not": {"required": ["b"]}}),
    "no type": {"properties": {"a": TEXT}, "oneOf": [{"required": ["a"]}]},
    "choices in choices": {"anyOf": [{"oneOf": [of({"a": TEXT}), of({"b": TEXT})]}, {"allOf": [of({"c": TEXT})]}]},
    "a reference into what is merged": {
        "oneOf": [of({"a": of({"x": {"$ref": "#/oneOf/0/properties/a"}})}),
                  of({"b": {"$ref": "#/oneOf/0/properties/a"}})]
    },
    "a reference to itself": {"$ref": "#", "allOf": [{"$ref": "#"}, {"$ref": "#"}]},
}  # fmt: skip
OPENAI: Final[tuple[ProtocolName, ...]] = ("chat_completions", "responses")
OF_ONE: Final[dict[str, tuple[Schema, tuple[ProtocolName, ...]]]] = {
    "no properties": ({"type": "object"}, OPENAI),
    "an array of what": (of({"a": {"type": "array"}, "b": {"type": ["array", "null"]}}), OPENAI),
    "names": (of({"filter[id]": TEXT, "$top": NUMBER, "x" * 70: TEXT, "é": TEXT}, required=["$top"]), ("anthropic",)),
    "draft 7": (
        of({"a": {"type": "array", "items": [TEXT, NUMBER], "additionalItems": False}},
           **{"$schema": "http://json-schema.org/draft-07/schema#"}),
        (*OPENAI, "anthropic"),
    ),
    "a reference to another name": (of({"a b": TEXT, "c": {"$ref": "#/properties/a%20b"}}), ("anthropic",)),
    "a reference to nothing": (of({"a": {"$ref": "#/$defs/None", "title": "A"}}), (*OPENAI, "anthropic")),
    "a reference into a tuple": (
        of({"a": {"type": "array", "items": [TEXT]}, "b": {"$ref": "#/properties/a/items/0"}}), (*OPENAI, "anthropic"),
    ),
    "arrays where dependencies are": (
        of({"a": TEXT}, dependencies={"a": {"properties": {"b": {"type": "array"}}}, "b": ["a"]}), OPENAI,
    ),
    "words of other languages": (
        of({"a": {"type": "STRING"}, "b": {"type": "int"}, "c": {"type": "any"}, "d": None}, required=None,
           additionalProperties=None),
        (*OPENAI, "anthropic"),
    ),
    "required as in draft 3": (of({"a": {"type": "string", "required": True}}), (*OPENAI, "anthropic")),
    "an object of PHP": ({"type": "object", "properties": [], "$defs": []}, (*OPENAI, "anthropic")),
    "empty choices": (of({"a": {"type": "string", "anyOf": [], "enum": None}}), (*OPENAI, "anthropic")),
    "draft 4": (
        of({"a": {"type": "number", "minimum": 1, "exclusiveMinimum": True, "maximum": 3, "exclusiveMaximum": False}},
           **{"$schema": "http://json-schema.org/draft-04/schema#"}),
        (*OPENAI, "anthropic"),
    ),
}  # fmt: skip


def request(protocol: ProtocolName, schema: Schema) -> Schema:
    """The request with one tool that has this schema, judged as its provider judges it."""
    agent = AgentSpec(model="x/y", tools=("t",))
    wire = PROTOCOLS[protocol]
    message = wire.message(Message(role="user", content="hi"))
    body = wire.body(agent, [message], [Offer("t", "T.", schema)], CallSettings(max_output_tokens=100))
    read(PATHS[protocol], body, {"anthropic-version": "2023-06-01"})
    (tool,) = json.loads(body)["tools"]
    sent: Schema = tool.get("input_schema") or tool.get("parameters") or tool["function"]["parameters"]
    return sent


def judged(protocol: ProtocolName, schema: Schema) -> None:
    if protocol == "anthropic":
        judge_tool_of_claude("tools.0.custom.input_schema", schema)
    else:
        judge_tool_of_openai("t", schema)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("schema", REFUSED.values(), ids=REFUSED)
def test_a_tool_is_one_object_at_the_top(schema: Schema, protocol: ProtocolName) -> None:
    if protocol != "anthropic":
        with pytest.raises(InvalidRequest):
            judged(protocol, schema)
    sent = request(protocol, schema)
    assert sent["type"] == "object"
    assert not {"$ref", "anyOf", "oneOf", "allOf", "enum", "not"} & sent.keys()


@pytest.mark.parametrize(("schema", "protocols"), OF_ONE.values(), ids=OF_ONE)
def test_what_one_of_them_wants_is_changed_for_it_alone(schema: Schema, protocols: tuple[ProtocolName, ...]) -> None:
    for protocol in PROTOCOLS:
        sent = request(protocol, schema)
        if protocol in protocols:
            with pytest.raises(InvalidRequest):
                judged(protocol, schema)
        else:
            assert sent == schema


def test_merged_is_what_each_alternative_fits_and_the_model_is_told_the_rest() -> None:
    sent = request("anthropic", REFUSED["oneOf objects"])
    assert sent["properties"] == {"a": {"anyOf": [TEXT, NUMBER]}, "b": TEXT}
    assert sent["required"] == ["a"]
    assert sent["description"].startswith('Has to fit: {"oneOf":[{')
    sent = request("chat_completions", REFUSED["allOf"])
    assert (sent["properties"], sent["required"]) == ({"a": TEXT, "b": TEXT}, ["a", "b"])
    sent = request("responses", REFUSED["a choice of references"])
    assert sent["properties"] == {"kind": {"anyOf": [{"const": "a"}, {"const": "b"}]}, "n": NUMBER}
    assert misfits(REFUSED["oneOf objects"], {"a": 1}), "the tool's own schema is what a call is held to"


def test_words_of_elsewhere_are_said_in_those_of_today() -> None:
    schema = of({"a": {"type": "STRING", "required": True}, "b": {"type": ["Float", "None"]}, "c": {"type": "list"}},
                required=["b", "b"])  # fmt: skip
    sent = request("responses", schema)
    assert sent["properties"] == {
        "a": TEXT, "b": {"type": ["number", "null"]}, "c": {"type": "array", "items": {}},
    }  # fmt: skip
    assert sent["required"] == ["b", "a"]
    for case in ("a reference to another name", "a reference into a tuple"):
        assert [*request("anthropic", OF_ONE[case][0])["$defs"].values()] == [TEXT]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "schema",
    [
        of({"y": NUMBER, "x": {}}),
        {"properties": {"a": {"anyOf": [TEXT, NUMBER]}}, "type": "object", "$defs": {}},
        of({"a": {"type": "array", "items": TEXT}}, additionalProperties=False, required=["a"]),
    ],
)
def test_what_fits_goes_byte_for_byte(schema: Schema, protocol: ProtocolName) -> None:
    whole = {"type": "object", **schema} if protocol == "anthropic" else schema
    assert json.dumps(request(protocol, schema)) == json.dumps(whole)


def reply(*calls: ToolCall) -> ModelReply:
    return ModelReply("", calls, "tool_calls", Usage())


def test_arguments_come_back_under_the_names_of_the_tool() -> None:
    schema, _ = OF_ONE["names"]
    offers = [Offer("t", "", schema), Offer("other", "", of({"a": TEXT}))]
    safe = list(request("anthropic", schema)["properties"])
    long = next(name for name in safe if name.startswith("xxx"))
    written = f'{{"filter_id_": "1", "_top": 12345678901234567890123, "{long}": "z", "more": 1.10}}'
    calls = (
        ToolCall(id="1", name="t", arguments=written),
        ToolCall(id="2", name="other", arguments='{"a": "_top"}'),
        ToolCall(id="3", name="t", arguments="not JSON"),
        ToolCall(id="4", name="t", arguments='{"$top": 1, "_top": 2}'),
        ToolCall(id="5", name="unknown", arguments='{"_top": 1}'),
    )
    back = as_declared(reply(*calls), offers, PROTOCOLS["anthropic"]).tool_calls
    assert back[0].arguments == f'{{"filter[id]":"1","$top":12345678901234567890123,"{"x" * 70}":"z","more":1.10}}'
    assert back[1:3] == calls[1:3]
    assert back[3].arguments == '{"$top":1,"_top":2}'
    assert back[4] == calls[4]
    assert as_declared(reply(*calls), offers, PROTOCOLS["responses"]).tool_calls == calls


def test_names_that_become_the_same_are_told_apart() -> None:
    schema = of({"a b": TEXT, "a/b": TEXT, "a_b": TEXT, "": TEXT})
    made = fitted_tool(schema, PROTOCOL_RULES["anthropic"].tools)
    assert isinstance(made, FittedTool)
    assert len(json.loads(made.schema)["properties"]) == 4
    assert sorted(made.names.values()) == ["", "a b", "a/b"]


def test_a_tool_of_ones_own_that_no_provider_takes_is_refused_with_the_place() -> None:
    ((where, why),) = tool_schema_faults(of({"a": {"type": "number", "minimum": "1"}}))
    assert where == "/properties/a/minimum"
    assert "no JSON schema" in why
    ((where, _),) = tool_schema_faults(of({}, **{"$schema": "https://example.com/mine"}))
    assert where == "/$schema"
    assert not [*tool_schema_faults(of({"a": {"type": "string", "pattern": "(?=a)"}}, anyOf=[{"required": ["a"]}]))]


parts = st.recursive(
    st.sampled_from([TEXT, NUMBER, {}, {"type": "array"}, {"$ref": "#/$defs/D"}, {"const": 1}, {"type": "null"}]),
    lambda inner: st.one_of(
        st.builds(of, st.dictionaries(st.sampled_from(["a", "b c", "$d"]), inner)),
        st.builds(lambda name, members: {name: members}, st.sampled_from(["anyOf", "oneOf", "allOf"]),
                  st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda one, other: {**one, **other}, inner, inner),
    ),
    max_leaves=8,
)  # fmt: skip


@given(parts)
def test_no_tool_costs_a_request(part: Schema) -> None:
    schema = {**part, "$defs": {"D": of({"d": {"type": "array"}})}}
    for protocol in PROTOCOLS:
        sent = request(protocol, schema)
        assert (
            fitted_tool(sent, PROTOCOL_RULES[protocol].tools).schema
            == json.dumps(sent, separators=(",", ":"), ensure_ascii=False).encode()
        )
