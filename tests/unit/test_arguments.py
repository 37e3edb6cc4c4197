"""Arguments that a model wrote: whatever they are, they are a dict or told to the model as not fitting."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import AfterValidator, Field

from palaver import tool
from palaver.errors import InvalidToolCall, classify
from palaver.errors.failure import MAX_MESSAGE
from palaver.schemas.arguments import read, readable
from palaver.schemas.models import Message, ToolCall
from palaver.steps.stuck import Turn
from palaver.vocabulary.limits import exceeded
from workers.protocols import CHAT_COMPLETIONS


def _unforeseen(value: str) -> str:
    return {"fine": value}[value]


@tool
def order(
    items: list[int],
    note: Annotated[str, Field(pattern=r"^(a+)+$", max_length=50)] = "a",
    extra: dict[str, Any] | None = None,
    kind: Annotated[str, AfterValidator(_unforeseen)] = "fine",
) -> str:
    """Order something."""
    return ""


def deep(levels: int) -> str:
    return '{"x":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


BAD = (
    *("[" * 100_000, '{"a":' * 100_000, deep(100_000), deep(1000), deep(300), deep(65)),
    *('{"items": NaN}', '{"items": [1e999]}', '{"items": [' + "9" * 200_000 + "]}", '{"items": "\\ud800"}'),
    *("\x00", "{} {}", "null", "[]", "7", '"text"', "{'a': 1}", "\ufeff{}", '{"a": 1,}', "{" + '"a":1,' * 9),
    *('{"items": [' + "1," * 20_000 + "1]}", '{"items": ["' + '","' * 9_000 + '"]}'),
    *('{"items": [' + "{}," * 5000 + "1]}", '{"items": [1], "note": "' + "a" * 5_000 + '!"}'),
    json.dumps({"items": [], **{f"key{i}" * 20: i for i in range(2_000)}}),
    '{"items": [1], "kind": "new"}',
    *('{"items": [], "extra": {"x": [-1e999]}}', '{"items": [], "extra": {"x": ' + "9" * 220 + "e99}}"),
)  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=lambda text: f"{text[:16]!r}-{len(text)}")
def test_what_does_not_fit_is_told_to_the_model_in_a_few_words(text: str) -> None:
    with pytest.raises(InvalidToolCall) as raised:
        order.parse(text)
    assert len(str(raised.value)) < 4 * MAX_MESSAGE
    failure = classify(raised.value, source="tool")
    assert (failure.error_class, failure.code, failure.recoverable) == (
        "invalid_tool_call",
        "invalid_arguments",
        True,
    )


@pytest.mark.slow
@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "surrogateescape")))
@example("\ud800")
@example('{"\\ud800": 1}')
def test_any_text_is_a_dict_or_refused(text: str) -> None:
    for parse in (read, order.parse):
        with suppress(InvalidToolCall):
            assert isinstance(parse(text), dict)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(("items", "note", "extra", "kind", "other")), _JSON))
def test_any_json_is_a_dict_or_refused(value: dict[str, Any]) -> None:
    text = json.dumps(value)
    for parse in (read, order.parse):
        with suppress(InvalidToolCall):
            assert isinstance(parse(text), dict)


def test_the_limits_are_counted_once_and_what_is_within_them_is_read() -> None:
    before = exceeded.copy()
    with pytest.raises(InvalidToolCall, match="64 levels"):
        read(deep(65))
    with pytest.raises(InvalidToolCall, match="10000 values"):
        read('{"x": [' + "1," * 10_000 + "1]}")
    assert readable(deep(65)) is None
    assert exceeded["arguments_depth"] == before["arguments_depth"] + 1
    assert exceeded["arguments_values"] == before["arguments_values"] + 1
    assert read(deep(64))
    assert len(read('{"x": [' + "1," * 9_990 + "1]}")["x"]) == 9_991
    prose = "one, two [three] {four}, " * 5_000
    assert read(json.dumps({"x": prose}))["x"] == prose
    assert read("") == read("  \n") == {}
    assert read(json.dumps({"digits": int("9" * 400), "text": "1e999"})) == {"digits": int("9" * 400), "text": "1e999"}


def sent_to_the_model(call: ToolCall) -> dict[str, Any]:
    asking = Message(role="assistant", tool_calls=(call,))
    return dict(json.loads(CHAT_COMPLETIONS.turn(asking, ())[0]))


def test_values_are_counted_before_each_of_them_is_looked_at() -> None:
    with pytest.raises(InvalidToolCall, match="the arguments have more than 10000 values"):
        read('{"items": [' + "1," * 131_000 + "1e999]}")


@pytest.mark.parametrize("text", [*BAD, deep(64), "", "{}"], ids=lambda text: f"{text[:16]!r}-{len(text)}")
def test_whatever_arguments_are_in_the_log_the_conversation_goes_on(text: str) -> None:
    call = ToolCall(id="c", name="order", arguments=text)
    sent = sent_to_the_model(call)["tool_calls"][0]["function"]["arguments"]
    assert isinstance(json.loads(sent), dict)
    assert Turn.of([call], {"c": Message(role="tool", call_id="c", name="order", content="fine")}).digest


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("order", "order"),
        ("", "unknown"),
        ("rm -rf /\n\x1b[31m", "rm_-rf_____31m"),
        ("x" * 128, "x" * 64),
        ("naïve\u202e", "na_ve_"),
    ],
)
def test_no_name_that_a_provider_refuses_goes_into_the_conversation(name: str, sent: str) -> None:
    asked = sent_to_the_model(ToolCall(id="c", name=name))
    assert asked["tool_calls"][0]["function"]["name"] == sent
