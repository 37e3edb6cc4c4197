"""What the tables of the bench say of its numbers, and how its programs read a model's answer."""

from __future__ import annotations

import pytest

from bench.answer import Answer, result
from bench.peers.rows import Row, ratio_cell

NAMES = ("ours", "theirs")


def row(*, more: bool | None = False, **values: list[float] | str) -> Row:
    return Row("ms", values, more)


def test_a_row_has_the_median_and_the_range_of_each_peer() -> None:
    assert row(ours=[3.0, 1.0, 2.0], theirs="never").cells([*NAMES, "absent"]) == [
        "ms",
        "2.00 (1.00 to 3.00)",
        "never",
        "-",
    ]


def test_ratios_are_of_the_same_round_and_above_one_where_ours_is_better() -> None:
    assert row(ours=[1.0, 2.0], theirs=[2.0, 1.0]).ratios(*NAMES) == [2.0, 0.5]
    assert row(ours=[1.0, 2.0], theirs=[2.0, 1.0], more=True).ratios(*NAMES) == [0.5, 2.0]


@pytest.mark.parametrize(
    "one",
    [
        row(ours=[1.0], theirs="never"),
        row(ours=[1.0]),
        row(ours=[1.0], theirs=[2.0], more=None),
        row(ours=[0.0], theirs=[1.0]),
    ],
)
def test_what_cannot_be_divided_has_no_ratio(one: Row) -> None:
    assert one.ratios(*NAMES) == []
    assert ratio_cell(one.ratios(*NAMES)) == "-"


def test_each_median_ratio_below_one_is_in_bold() -> None:
    assert ratio_cell([2.0]) == "2.00"
    assert ratio_cell([0.5, 0.25, 2.0], [], [1.0]) == "**0.50**, -, 1.00"


def test_an_answer_may_be_cut_anywhere() -> None:
    begun = b'{"index":0,"id":"call_1","function":{"name":"add","arguments":"{\\"expression\\":"}}'
    rest = b'{"index":0,"function":{"arguments":" \\"1 + 1\\"}"}}'
    stream = b"".join(b'data: {"choices":[{"delta":{"tool_calls":[%b]}}]}\r\n\r\n' % part for part in (begun, rest))
    answer = Answer()
    for byte in stream + b"data: [DONE]\n\n":
        answer.feed(bytes([byte]))
    (call,) = answer.message()["tool_calls"]
    assert call["function"] == {"name": "add", "arguments": '{"expression": "1 + 1"}'}
    assert result(call, lambda expression: expression) == {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": "1 + 1",
    }
