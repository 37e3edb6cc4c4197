"""Agents that ask people and clients: their tools, their schemas, their approvals."""

from __future__ import annotations

from typing import Any

from tests.unit.api_world import AGENT, World, assert_problem, in_one_world, world


@in_one_world(
    [
        ({}, "/type", 'must be "object"'),
        ({"type": "string"}, "/type", 'must be "object"'),
        ({"type": ["object", "null"]}, "/type", 'must be "object"'),
        ({"type": "object", "properties": []}, "/properties", "an object of schemas"),
        ({"type": "object", "properties": {"a/b": "string"}}, "/properties/a~1b", "an object or a boolean"),
        ({"type": "object", "properties": {"a": {"type": "text"}}}, "/properties/a/type", "one of object, array"),
        ({"type": "object", "properties": {"a": {"type": {}}}}, "/properties/a/type", "one of object, array"),
        ({"type": "object", "required": "a"}, "/required", "a list of names"),
        ({"type": "object", "required": [1]}, "/required", "a list of names"),
        ({"type": "object", "anyOf": {}}, "/anyOf", "a list of schemas"),
        ({"type": "object", "properties": {"a": {"items": {"type": 1}}}}, "/properties/a/items/type", "one of object"),
        ({"type": "object", "properties": {"a": {"anyOf": [{"type": ""}]}}}, "/properties/a/anyOf/0/type", "one of"),
        ({"type": "object", "description": "x" * 33_000}, "", "at most 32768"),
    ]
)
async def test_the_parameters_of_a_clients_tool_are_a_schema(
    api: World, parameters: dict[str, Any], place: str, says: str
) -> None:
    for path, body in (("/v1/runs", {"input": "hi"}), ("/v1/conversations", {})):
        tool = {"name": "ask", "parameters": parameters}
        answer = await api.client.post(path, json={**body, "agent": {**AGENT, "client_tools": [tool]}})
        problem = assert_problem(answer, 422, "invalid_schema", f"/agent/client_tools/0/parameters{place}")
        assert says in problem["errors"][0]["message"]


async def test_agents_that_ask_people_and_clients_are_taken() -> None:
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "where"},
            "lines": {"type": ["array", "null"], "items": {"$ref": "#/$defs/line"}},
            "anything": True,
            "mode": {"enum": ["r", "w"]},
            "type": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "required": ["path"],
        "additionalProperties": False,
        "$defs": {"line": {"type": "integer"}},
    }
    client_tools = [{"name": "open_file", "parameters": schema, "timeout": 60}, {"name": "clock"}]
    async with world() as api:
        for require in ("never", "risky", "always", [], ["*"], ["calc*", "calculator"]):
            agent = {**AGENT, "name": "clerk", "client_tools": client_tools, "approvals": {"require": require}}
            kept = (await api.submit(agent=agent))["agent"]
            assert (kept["name"], kept["approvals"]["require"]) == ("clerk", require)
            assert kept["client_tools"][0]["parameters"] == schema
