"""Tools: a typed function becomes a tool; wrong arguments are told to the model; built-ins do what they say."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver import Tool, ToolContext, ToolError, tool
from palaver.errors import ConfigurationError, InvalidToolCall
from palaver.tools import ToolDeclaration, load_tools
from palaver.tools.builtin import calculator, clock
from palaver.tools.declaration import ToolOptions
from palaver.tools.rendering import MAX_RESULT_CHARS, render
from tests.pages import ROOT


@tool(idempotent=True, timeout=7)
def weather(city: str, days: int = 1) -> str:
    """The forecast for a city."""
    return f"{city}: {days}"


def test_the_signature_is_the_schema() -> None:
    assert weather.name == "weather"
    assert weather.description == "The forecast for a city."
    assert weather.parameters["properties"]["city"] == {"type": "string"}
    assert weather.parameters["required"] == ["city"]
    assert weather("Oslo", days=2) == "Oslo: 2"


def test_a_plain_tool_is_neither_idempotent_nor_inline() -> None:
    @tool
    def send(text: str) -> None:
        """Send it."""

    assert (send.idempotent, send.inline, send.timeout) == (False, False, 30.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{", "JSON"),
        ("[]", "arguments"),
        ('{"days": 1}', "city"),
        ('{"city": "Oslo", "days": "many"}', "days"),
        ('{"city": "Oslo", "hours": 1}', "hours"),
    ],
)
def test_arguments_that_do_not_fit_are_told(arguments: str, said: str) -> None:
    with pytest.raises(InvalidToolCall, match=said):
        weather.parse(arguments)


def test_no_arguments_at_all_are_an_empty_object() -> None:
    assert clock.parse("") == {"timezone": "UTC"}


def test_a_function_without_annotations_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="annotation"):

        @tool
        def broken(x):  # type: ignore[no-untyped-def]
            """No type."""


@pytest.mark.parametrize("kind", [threading.Thread, Callable[[], int]])
def test_a_type_without_a_schema_is_refused(kind: Any) -> None:
    def broken(x: Any) -> None:
        """Takes what no model can write."""

    broken.__annotations__["x"] = kind
    with pytest.raises(ConfigurationError, match="tool broken: a type has no JSON schema: "):
        tool(broken)


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), 86_401])
def test_a_tool_has_some_time_and_not_for_ever(timeout: float) -> None:
    with pytest.raises(ConfigurationError, match="at most 86,400 s"):
        tool(timeout=timeout)


def test_an_option_that_a_tool_has_not_is_answered_with_what_there_is() -> None:
    with pytest.raises(ConfigurationError, match="@tool has no option idempotnt; did you mean 'idempotent'"):
        tool(idempotnt=True)  # type: ignore[call-overload]


def test_each_option_has_a_row_in_the_reference() -> None:
    (table,) = re.findall(r"(?m)^\| `@tool\(…\)` .*\n((?:\|.*\n)+)", (ROOT / "docs/reference/tools.md").read_text())
    heads = "".join(row.split("|")[1] for row in table.splitlines())
    assert {*re.findall(r"`(\w+)`", heads)} == ToolOptions.__annotations__.keys()


@pytest.mark.parametrize(
    ("expression", "value"), [("1 + 2 * 3", "7"), ("2 ** 10", "1024"), ("-(4 / 8)", "-0.5"), ("7 // 2 % 2", "1")]
)
def test_the_calculator_calculates(expression: str, value: str) -> None:
    assert calculator(expression) == value


@pytest.mark.parametrize(
    "expression", ["1 / 0", "9 ** 9 ** 9", "__import__('os')", "True", "1 +", "(-8) ** 0.5", "10 ** 900 ** 2"]
)
def test_the_calculator_refuses_in_words(expression: str) -> None:
    with pytest.raises(ToolError, match="cannot evaluate"):
        calculator(expression)


@given(st.text(max_size=40))
def test_the_calculator_never_fails_otherwise(expression: str) -> None:
    with suppress(ToolError):
        assert isinstance(calculator(expression), str)


def test_the_clock_knows_time_zones() -> None:
    assert clock("Asia/Tokyo").endswith("+09:00")
    for name in ("Mars/Olympus", "Factory", "right/UTC", "posixrules", "localtime"):
        with pytest.raises(ToolError, match="IANA"):
            clock(name)


def test_results_are_text_json_or_cut() -> None:
    assert render("plain") == "plain"
    assert render({"a": [1, None]}) == '{"a": [1, null]}'
    assert len(render("x" * (2 * MAX_RESULT_CHARS))) < MAX_RESULT_CHARS + 100
    assert render("\ud800") == "\ufffd"


def test_users_tools_come_from_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("shop_tools")
    module.weather = weather  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_tools", module)
    assert load_tools(("shop_tools",))[-1] is weather
    with pytest.raises(ConfigurationError, match="no_such_module"):
        load_tools(("no_such_module",))
    monkeypatch.setitem(sys.modules, "empty_tools", ModuleType("empty_tools"))
    with pytest.raises(ConfigurationError, match="declares no tool"):
        load_tools(("empty_tools",))


NESTED = {
    "type": "object",
    "properties": {
        "orders": {"type": "array", "items": {"$ref": "#/$defs/order"}},
        "x-note": {"type": ["string", "null"]},
    },
    "required": ["orders"],
    "$defs": {"order": {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}},
}


class TestBySchema:
    def test_a_tool_of_its_parts_has_the_options_of_the_decorator(self) -> None:
        made = Tool("count", "Count.", NESTED, lambda **arguments: len(arguments), idempotent=True, timeout=3)
        assert made.declaration == ToolDeclaration(
            name="count", description="Count.", parameters=NESTED, idempotent=True, timeout=3
        )
        assert made(a=1, b=2) == 2
        assert not made.is_async

    def test_its_arguments_are_held_to_all_of_the_schema(self) -> None:
        made = Tool("count", "Count.", NESTED, lambda **arguments: arguments)
        text = '{"orders": [{"amount": 1}], "x-note": null}'
        assert made.bind(made.parse(text), ToolContext())() == {"orders": [{"amount": 1}], "x-note": None}
        with pytest.raises(InvalidToolCall, match=r"the arguments of count do not fit: orders\.0\.amount: is not of"):
            made.parse('{"orders": [{"amount": "1"}]}')

    async def test_its_function_may_be_async_and_may_take_the_context(self) -> None:
        async def call(orders: list[object], at: ToolContext, **rest: object) -> str:
            return f"{len(orders)} in {at.call_id}"

        made = Tool("count", "Count.", NESTED, call)
        assert made.is_async
        assert made.context_parameter == "at"
        # The schema allows more names, and the model may hit upon this one.
        assert await made.bind(made.parse('{"orders": [], "at": 1}'), ToolContext(call_id="c"))() == "0 in c"

    def test_a_function_in_c_has_no_signature_and_is_called_all_the_same(self) -> None:
        made = Tool("collect", "Collect.", {"type": "object"}, dict)
        assert made.bind(made.parse('{"a": 1}'), ToolContext())() == {"a": 1}

    @pytest.mark.parametrize(
        ("name", "schema", "options", "said"),
        [
            ("two words", {}, {}, "a tool cannot be named 'two words'"),
            ("a", {"type": "array"}, {}, "its parameters are a JSON schema of an object"),
            ("a", {"type": "nothing"}, {}, "its parameters are a JSON schema of an object"),
            ("a", {"properties": {"b": {"type": "nothing"}}}, {}, "tool a: its schema"),
            ("a", {"properties": {"b": {"$ref": "https://elsewhere.example/s"}}}, {}, "its schema at /properties/b"),
            ("a", {"properties": {"b": {"default": object()}}}, {}, "its schema is not JSON"),
            ("a", {}, {"timeout": 0}, "a tool's timeout is more than 0"),
            ("a", {"properties": {"at": {}}}, {}, "tool a: the model fills at, or it is the context"),
        ],
        ids=lambda each: each if isinstance(each, str) and " " in each else "",
    )
    def test_what_no_model_could_call_is_refused_where_it_is_declared(
        self, name: str, schema: dict[str, Any], options: dict[str, Any], said: str
    ) -> None:
        def call(at: ToolContext) -> str:
            return at.call_id

        with pytest.raises(ConfigurationError, match=said):
            Tool(name, "", schema, call, **options)

    def test_what_cannot_be_called_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="tool a: nothing to call"):
            Tool("a", "", {}, 5)  # type: ignore[arg-type]

    def test_a_module_in_both_settings_is_loaded_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        text = "from palaver import Tool\nnoop = Tool('noop', '', {}, dict)\nsame = noop"
        (tmp_path / "both_tools.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        *builtin, noop = load_tools(("both_tools",), ("both_tools",))
        assert noop.name == "noop"
        assert len(builtin) == len(load_tools(()))
        with pytest.raises(ConfigurationError, match="PALAVER_INLINE_TOOLS: cannot import 'nowhere_tools'"):
            load_tools(("both_tools",), ("nowhere_tools",))
