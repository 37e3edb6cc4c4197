"""JSON whose text is kept as it came."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import ResponseTooLarge
from palaver.vocabulary.limits import limit_of
from workers.protocols.bounds import Parts
from workers.protocols.verbatim import Tree, elements, members, merged, tree, written


def taken(text: str) -> Tree:
    """The objects within ``text``."""
    return tree(text, orjson.loads(text), Parts())


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=15,
)
INDENTS = st.sampled_from([None, 1])


@pytest.mark.slow
@given(st.dictionaries(st.text(), VALUES), INDENTS, st.booleans())
def test_the_members_of_an_object(value: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    found = members(json.dumps(value, indent=indent, ensure_ascii=ascii_only))
    assert [(name, json.loads(text)) for name, text in found.items()] == list(value.items())


@pytest.mark.slow
@given(st.lists(VALUES), INDENTS)
def test_the_elements_of_an_array(value: list[Any], indent: int | None) -> None:
    assert [json.loads(text) for text in elements(json.dumps(value, indent=indent))] == value


@pytest.mark.parametrize("text", ["1.0", "1e2", "0.10", "100000000000000000001", '"\\u00e9\\/"', '{"b":1.50,"a":[2]}'])
def test_the_text_of_a_value_stays_as_it_is(text: str) -> None:
    assert members(f' {{ "x" : {text} , "y":null}}') == {"x": text, "y": "null"}
    assert elements(f"[ {text} ,1]") == [text, "1"]
    assert written(taken(f'{{"x": {text}}}')) == f'{{"x":{text}}}'


@pytest.mark.parametrize(
    "text", ["", "1", "[", "{", '{"a"}', '{"a":1', '{"a":1 "b":2}', "{a:1}", "[1 2]", "[1", "[" * 9999]
)
def test_what_is_neither_is_said(text: str) -> None:
    for read in (members, elements):
        with pytest.raises(ValueError, match=r"malformed|truncated|Expected|levels"):
            read(text)


def test_what_comes_later_is_added_and_null_changes_nothing() -> None:
    first, more = taken('{"a":{"x":1.0,"y":2},"b":3}'), taken('{"a":{"y":20,"z":null},"b":null,"c":[4]}')
    assert written(merged(first, more)) == '{"a":{"x":1.0,"y":20,"z":null},"b":3,"c":[4]}'


def test_an_object_of_many_levels_is_one_text_from_some_level_on() -> None:
    deep = '{"a":' * 500 + "1.0" + "}" * 500
    assert written(taken(deep)) == deep


def test_only_so_many_parts_are_taken_apart() -> None:
    many = json.dumps({str(n): {"x": n} for n in range(limit_of("answer_parts") // 2)})
    assert written(taken(many)) == many.replace(" ", "")
    with pytest.raises(ResponseTooLarge, match="parts"):
        taken(many[:-1] + ',"more":{"x":1}}')
    parts = Parts()
    values: list[Any] = [[1] * limit_of("answer_parts"), {}, "text", None, 7]
    for value in values:
        parts.admit(value)
    with pytest.raises(ResponseTooLarge):
        parts.admit([1])
