"""Tools of other workers in the toolbox of a model worker: what is offered, and what is asked of their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from palaver import ToolContext, tool
from palaver.errors import InvalidToolCall, UnknownTool
from palaver.store.fleet.tools import DeclaredSet
from palaver.tools import ToolDeclaration
from workers.sources import Elsewhere, Toolbox
from workers.sources.functions import Functions

NOW = datetime.now(UTC)
SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["number"],
    "additionalProperties": False,
}


def declared(description: str = "", name: str = "refund", **flags: Any) -> ToolDeclaration:
    return ToolDeclaration(name=name, description=description, parameters=SCHEMA, timeout=5, **flags)


def found(*tools: ToolDeclaration, since: float, seen: float = 0.0) -> DeclaredSet:
    """A set that was declared so many seconds ago first, and so many last."""
    ago = timedelta(seconds=since), timedelta(seconds=seen)
    return DeclaredSet(tools, NOW - ago[1], NOW - ago[0], frozenset({"tools"}))


def having(sets: Mapping[str, DeclaredSet]) -> Elsewhere:
    elsewhere = Elsewhere()
    elsewhere.take(sets)
    return elsewhere


@tool(inline=True)
def here(text: str) -> str:
    """Runs in this process."""
    return text


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")], ids=str)
def test_of_two_versions_the_newer_one_is_offered_whoever_spoke_last(order: tuple[str, str]) -> None:
    sets = {"a": found(declared("new"), since=10, seen=5), "b": found(declared("old"), since=900)}
    assert having({digest: sets[digest] for digest in order})["refund"].description == "new"


def test_a_version_whose_workers_are_gone_gives_way_to_one_that_has_some() -> None:
    sets = {"a": found(declared("rolled back"), since=10, seen=70), "b": found(declared("old"), since=900)}
    assert having(sets)["refund"].description == "old"
    assert having({"a": sets["a"]})["refund"].description == "rolled back", "the last workers had it"


def test_of_two_versions_with_workers_the_more_careful_word_counts() -> None:
    careful, bold = declared("new", risky=True), declared("old", idempotent=True)
    tool = having({"a": found(bold, since=900), "b": found(careful, since=10)})["refund"]
    assert (tool.description, tool.risky, tool.idempotent) == ("new", True, False)
    tool = having({"a": found(careful, since=900), "b": found(bold, since=10)})["refund"]
    assert (tool.description, tool.risky, tool.idempotent) == ("old", True, False)
    tool = having({"a": found(careful, since=900, seen=70), "b": found(bold, since=10)})["refund"]
    assert (tool.risky, tool.idempotent) == (False, True), "nobody runs the other one"


def test_a_tool_is_a_step_where_its_code_is_not_however_it_is_declared() -> None:
    elsewhere = having({"a": found(declared(inline=True), declared(name="here", inline=True), since=10)})
    toolbox = Toolbox([Functions([here])], elsewhere=elsewhere)
    assert not toolbox["refund"].inline
    assert toolbox["here"].inline
    assert [each.name for each in toolbox.declarations] == ["here"], "it declares what it has itself"


def test_a_tool_that_is_offered_at_the_moment_stays_until_nobody_can_ask_for_it() -> None:
    elsewhere = having({"a": found(declared(), declared(name="gone"), since=10)})
    for _ in range(2):
        elsewhere.take({"b": found(declared(name="new"), since=0)}, in_use={"gone", "never there"})
        assert {*elsewhere} == {"new", "gone"}
    elsewhere.take({"b": found(declared(name="new"), since=0)})
    assert {*elsewhere} == {"new"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "must be a JSON object"),
        ("{}", '"number" is a required property'),
        ('{"numer": 3}', '"number" is a required property'),
        ('{"number": "x", "other": 1}', "number: is not of type"),
    ],
    ids=["no object", "missing", "misspelt", "all faults at once"],
)
def test_arguments_with_wrong_names_are_refused_where_they_were_written(text: str, said: str) -> None:
    toolbox = Toolbox([], elsewhere=having({"a": found(declared(), since=10)}))
    with pytest.raises(InvalidToolCall, match="the arguments of refund do not fit") as raised:
        toolbox.check("refund", text)
    assert said in str(raised.value)


def test_a_value_is_for_the_code_to_judge_unless_somebody_decides_on_the_call() -> None:
    toolbox = Toolbox([Functions([here])], elsewhere=having({"a": found(declared(), since=10)}))
    tool, arguments = toolbox.check("refund", '{"number": "3"}')
    assert (tool.name, arguments) == ("refund", {"number": "3"})
    with pytest.raises(InvalidToolCall, match="number: is not of type"):
        toolbox.require_fit("refund", '{"number": "3"}')
    toolbox.require_fit("refund", '{"number": 3}')
    toolbox.require_fit("here", '{"anything": 1}')


@pytest.mark.parametrize(
    "schema",
    [{}, {"required": [{}, 1], "properties": None, "additionalProperties": False}, {"required": "number"}],
    ids=str,
)
def test_a_schema_that_is_none_refuses_nothing_and_breaks_nothing(schema: dict[str, Any]) -> None:
    odd = ToolDeclaration(name="odd", description="", parameters=schema, timeout=5)
    elsewhere = having({"a": found(odd, since=10)})
    assert elsewhere.check("odd", "{}")[1] == {}


async def test_a_tool_elsewhere_is_not_called_here() -> None:
    toolbox = Toolbox([Functions([here])], elsewhere=having({"a": found(declared(), since=10)}))
    assert "refund" in toolbox
    with pytest.raises(UnknownTool):
        await toolbox.call("refund", {"number": 3}, ToolContext())
    with pytest.raises(UnknownTool, match="did you mean 'refund'"):
        toolbox.check("refunds", "{}")
