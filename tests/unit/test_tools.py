"""Tools: a typed function becomes a tool; wrong arguments are told to the model; built-ins do what they say."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver import ToolError, tool
from palaver.errors import ConfigurationError, InvalidToolCall
from palaver.tools import load_tools
from palaver.tools.builtin import calculator, clock
from palaver.tools.rendering import MAX_RESULT_CHARS, render


@tool(idempotent=True, timeout=7)
def weather(city: str, days: int = 1) -> str:
    """The forecast for a city."""
    return f"{city}: {days}"


def test_the_signature_is_the_schema() -> None:
    assert weather.name == "weather"
    assert weather.description == "The forecast for a city."
    assert weather.schema["properties"]["city"] == {"type": "string"}
    assert weather.schema["required"] == ["city"]
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
    with pytest.raises(ToolError, match="IANA"):
        clock("Mars/Olympus")


def test_results_are_text_json_or_cut() -> None:
    assert render("plain") == "plain"
    assert render({"a": [1, None]}) == '{"a": [1, null]}'
    assert len(render("x" * (2 * MAX_RESULT_CHARS))) < MAX_RESULT_CHARS + 100
    assert render("\ud800") == "?"


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
