"""All tools of a worker, of several sources: who has which, and what they are given."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from palaver import ToolContext, tool
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError, InvalidToolCall, UnknownTool
from palaver.tools import ToolDeclaration
from palaver.tools.schemas import fitting
from tests.process.remote_tools import RemoteTools, Server, remote_tools
from workers.sources import SOURCES, RunBlocking, Toolbox, ToolSource, open_toolbox
from workers.sources.functions import Functions


@tool
def look_up(key: str) -> str:
    """Has the name of another one."""
    return key


@asynccontextmanager
async def _clashing(settings: Settings, run_blocking: RunBlocking | None) -> AsyncIterator[ToolSource]:
    yield Functions([look_up], run_blocking)


async def test_a_toolbox_has_the_tools_of_all_sources() -> None:
    async with open_toolbox(Settings(), (*SOURCES, remote_tools)) as tools:
        assert {"calculator", "look_up"} <= {each.name for each in tools.declarations}
        assert tools["look_up"] == Server.offers[0].digested()
        for name, text, result in (
            ("calculator", '{"expression": "1 + 1"}', "2"),
            ("look_up", '{"key": "a"}', '{"name": "look_up", "key": "a"}'),
        ):
            declared, arguments = tools.check(name, text)
            assert declared.name == name
            assert await tools.call(name, arguments, ToolContext()) == result


async def test_two_sources_with_a_tool_of_one_name_are_refused_by_both_names() -> None:
    said = "two tools are named 'look_up', one in the server, one in PALAVER_TOOLS: give one another name"
    with pytest.raises(ConfigurationError, match=said):
        async with open_toolbox(Settings(), (remote_tools, _clashing)):
            pass


def test_two_functions_of_one_name_are_refused() -> None:
    @tool(name="look_up")
    def search(key: str) -> str:
        """Has the name of another one."""
        return key

    with pytest.raises(ConfigurationError, match="two tools are named 'look_up', both in PALAVER_TOOLS"):
        Toolbox([Functions([look_up, search])])


@pytest.mark.parametrize(
    ("name", "said"), [("look_upp", "did you mean 'look_up'"), ("x", "there are: look_up, remove")], ids=["near", "far"]
)
def test_a_toolbox_says_which_name_may_be_meant(name: str, said: str) -> None:
    tools = Toolbox([RemoteTools(Server())])
    for asked in (lambda: tools[name], lambda: tools.check(name, "{}")):
        with pytest.raises(UnknownTool, match=said):
            asked()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "the arguments are not JSON"),
        ("[]", "must be a JSON object"),
        ("{}", 'arguments: "key" is a required property'),
        ('{"key": 5}', 'key: is not of type "string"'),
        ('{"key": "a", "other": 1}', "'other' was unexpected"),
        ("[" * 100_000, "JSON"),
        ('{"key": "' + "a" * 100 + '"}', "key: is longer than 20 characters"),
    ],
    ids=["no JSON", "no object", "missing", "another type", "unknown", "deep", "long"],
)
def test_arguments_that_do_not_fit_a_schema_are_told(text: str, said: str) -> None:
    with pytest.raises(InvalidToolCall) as raised:
        fitting(Server.offers[0], text)
    assert str(raised.value).startswith("the arguments of look_up do not fit: ")
    assert said in str(raised.value)
    assert "aaa" not in str(raised.value)


def test_what_is_told_of_many_faults_is_bounded() -> None:
    declared = ToolDeclaration(
        name="t", description="", parameters={"additionalProperties": {"type": "null"}}, timeout=1
    )
    text = "{" + ",".join(f'"{"k" * 100}{number}": 1' for number in range(40)) + "}"
    with pytest.raises(InvalidToolCall, match=r"and 32 more$") as raised:
        fitting(declared, text)
    assert len(str(raised.value)) < 2000


def test_a_schema_that_refers_to_itself_takes_no_longer_with_each_level() -> None:
    """With each level twice the work, 60 levels would take longer than anybody waits."""
    again = {"properties": {"c": {"$ref": "#"}}}
    schema = {"type": "object", "anyOf": [again, {**again, "minProperties": 2}]}
    declared = ToolDeclaration(name="t", description="", parameters=schema, timeout=1)
    with pytest.raises(InvalidToolCall, match="does not fit in some place"):
        fitting(declared, '{"c": ' * 60 + "1" + "}" * 60)
    assert fitting(declared, "{}") == {}


def test_arguments_and_schema_are_not_both_large() -> None:
    schema = {"properties": {"all": {"items": {"anyOf": [{"required": ["a"]}] * 900}}}}
    declared = ToolDeclaration(name="t", description="", parameters=schema, timeout=1)
    with pytest.raises(InvalidToolCall, match="too many values"):
        fitting(declared, json.dumps({"all": [{}] * 600}))


def test_a_schema_that_is_none_leaves_it_to_the_tool() -> None:
    declared = ToolDeclaration(name="t", description="", parameters={"type": "nothing"}, timeout=1)
    assert fitting(declared, '{"a": 1}') == {"a": 1}
