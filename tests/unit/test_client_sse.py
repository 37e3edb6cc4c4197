from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.client.sse import Frame, SSEParser


def parse(*chunks: bytes) -> list[Frame]:
    parser = SSEParser()
    return [frame for chunk in chunks for frame in parser.feed(chunk)]


LINES = st.one_of(
    st.sampled_from(["", "", ": keep-alive", "retry: 2000", "retry: x", "data", "data:", "id", "id: \0", "junk: 1"]),
    st.builds(
        lambda name, text: f"{name}: {text}",
        st.sampled_from(["data", "event", "id", "comment"]),
        st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8),
    ),
)


@pytest.mark.slow
@given(
    lines=st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r\n", "\r"])), max_size=30),
    data=st.data(),
)
def test_any_split_of_the_bytes_gives_the_same_frames(lines: list[tuple[str, str]], data: st.DataObject) -> None:
    raw = "".join(text + end for text, end in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20)))
    chunks = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert parse(*chunks) == parse(raw)
    assert parse(*(raw[at : at + 1] for at in range(len(raw)))) == parse(raw)


@pytest.mark.parametrize(
    ("raw", "frames"),
    [
        (b"data: a\n\n", [Frame("message", "a", None)]),
        (b"\xef\xbb\xbfdata: a\n\n", [Frame("message", "a", None)]),
        (b"id: 3\nevent: x\ndata:{}\r\n\r\n", [Frame("x", "{}", "3")]),
        (b"data: a\ndata:  b\ndata\n\n", [Frame("message", "a\n b\n", None)]),
        (b"event: x\n\ndata: a\n\n", [Frame("message", "a", None)]),
        (b"id: 1\ndata: a\n\ndata: b\n\n", [Frame("message", "a", "1"), Frame("message", "b", None)]),
        (b"data: cut off\n", []),
        (b": only a comment\n\n", []),
        ("data: hé€😀\n\n".encode(), [Frame("message", "hé€😀", None)]),
    ],
)
def test_frames(raw: bytes, frames: list[Frame]) -> None:
    assert parse(raw) == frames


def test_retry_is_in_milliseconds_on_the_wire_and_seconds_here() -> None:
    parser = SSEParser()
    assert parser.retry is None
    parser.feed(b"retry: 2500\n\nretry: soon\n\n")
    assert parser.retry == 2.5
