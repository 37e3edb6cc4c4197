"""JSON that is not quite JSON is read, and everything else of it stays as it came."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.incoming.lenient_json import Halves, joined, joined_json, mended, read_json


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (rb'{"a": "x \ud83d"}', {"a": "x \ufffd"}),
        (rb'["\ud83d\ude00", "\uD83D\uDE00\ude00", "\ud83d\ud83d\ude00"]', ["😀", "😀\ufffd", "\ufffd😀"]),
        (rb'["\\ud83d", "\"\ud83d\"", "\\\ud83d"]', ["\\ud83d", '"\ufffd"', "\\\ufffd"]),
        (b'{"\\ud83d": 1}', {"\ufffd": 1}),
        (b'[NaN, -Infinity, Infinity, "NaN, \\"NaN", -1]', [None, None, None, 'NaN, "NaN', -1]),
        (b'{"a": "x\ny\tz\r", "b": "\x00\x01"}', {"a": "x\ny\tz\r", "b": "  "}),
        (b'["\xff", "\xc3\xa9", "\xed\xa0\xbd\xed\xb8\x80"]', ["\ufffd", "é", "😀"]),
        (b"NaN", None),
    ],
)
def test_what_is_not_quite_json_is_read(data: bytes, value: object) -> None:
    assert read_json(data) == value


@pytest.mark.parametrize("data", [b"", b"{", b"x", b'{"a": NaN', b'{"a": Nan}', b"[1,]", b'["\\ud83d]', b"{'a': 1}"])
def test_what_is_none_is_none(data: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        read_json(data)


def test_what_is_right_stays_as_it_came() -> None:
    data = b'{"z": 1.50, "n": 100000000000000000001, "e": "\\u00fc\\ud83d\\ude00", "half": "\\ud83d", "x": NaN }'
    right = data.replace(b'"\\ud83d"', b'"\\udbfe\\udc3d"').replace(b"NaN", b"null")
    assert mended(data) == right
    assert joined_json(mended(data).decode()) == right.decode().replace(r"\udbfe\udc3d", "\ufffd")


@given(st.text(st.characters(exclude_categories=[]), max_size=20), st.data())
def test_halves_that_come_apart_are_one_text(text: str, data: st.DataObject) -> None:
    """Any text, cut between any two of its halves, is what it is in one piece."""
    halves = text.encode("utf-16-le", "surrogatepass")
    units = [halves[place : place + 2].decode("utf-16-le", "surrogatepass") for place in range(0, len(halves), 2)]
    cut = data.draw(st.integers(0, len(units)))
    parts = [json.dumps("".join(part)).encode() for part in (units[:cut], units[cut:])]
    whole = halves.decode("utf-16-le", "replace")
    if any(each >= "\U0010f800" for each in whole):
        return
    pieces = [orjson.loads(mended(part)) for part in parts]
    told = Halves()
    assert joined("".join(pieces)) == whole
    assert "".join([*map(told.add, pieces), told.end()]) == whole
